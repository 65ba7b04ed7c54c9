"""Finds the RocksDB library that the native engine loads."""
