"""``cqstore usage``: what fills the log."""
