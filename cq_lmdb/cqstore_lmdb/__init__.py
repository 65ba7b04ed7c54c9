"""Consume queues in LMDB: a backend of cqstore that only its entry point makes known."""
