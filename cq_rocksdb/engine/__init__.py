"""The two RocksDB engines behind one interface."""
