"""``cqstore ab run``: planned, run round by round, made a result."""
