"""Comparing two logs: what is the same, where they diverge, and truncating one to rejoin."""
