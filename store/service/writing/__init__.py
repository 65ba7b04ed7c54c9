"""From messages to the log, and to the disk."""
