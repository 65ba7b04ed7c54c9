"""All consume queues in one RocksDB."""
