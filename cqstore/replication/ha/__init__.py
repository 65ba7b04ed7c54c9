"""Compares two logs, finds where they diverge, and truncates one so that it can rejoin."""
