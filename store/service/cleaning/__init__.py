"""Taking away for good: topics, old log files, and what a full disk asks for."""
