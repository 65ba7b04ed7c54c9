"""Comparison of the queues of two sides unit by unit, with each other and with the log."""
