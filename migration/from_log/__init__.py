"""Build queues from the commit log alone: log files to packed blocks, blocks to queues."""
