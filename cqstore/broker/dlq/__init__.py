"""``cqstore dlq``: dead letters and their original topics."""
