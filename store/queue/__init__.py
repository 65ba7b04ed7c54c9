"""The consume-queue interface: units in batches and blocks, search, and backends by name."""
