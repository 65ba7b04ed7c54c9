"""``cqstore dlq``: dead letters and where they came from."""
