"""Tools of the project: benchmarks, mutation sampling, wheels of the RocksDB library."""
