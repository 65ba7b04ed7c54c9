"""The message store: put, get, dispatch, recovery, locks, checks."""
