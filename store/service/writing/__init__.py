"""Writing: from messages to the log, and to disk."""
