"""Rollback of a migration at any stage, and its end."""
