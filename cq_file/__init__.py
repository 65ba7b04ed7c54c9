"""Consume queues in fixed-size files of 20-byte units, one folder per queue."""
