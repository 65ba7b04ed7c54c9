"""Running on Spark: the session that tables and tasks share, and the daemon of its workers."""
