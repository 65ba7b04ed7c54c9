"""``cqstore pending``: messages that wait for delivery or for a transaction decision."""
