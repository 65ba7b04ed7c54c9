"""Dispatch: from the log to the queues and the index."""
