"""``cqstore usage``: usage of the log per topic, group or day."""
