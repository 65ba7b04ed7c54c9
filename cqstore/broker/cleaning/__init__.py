"""Deletion of unused, idle and expired lite topics, by rules and at a limited rate."""
