"""Records a trace of a running broker: puts from its replication port, pulls from its offsets."""
