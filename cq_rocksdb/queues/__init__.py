"""Consume queues in RocksDB: units, offsets, batches, cuts and checks."""
