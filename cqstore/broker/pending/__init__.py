"""``cqstore pending``: messages that wait to be delivered or decided."""
