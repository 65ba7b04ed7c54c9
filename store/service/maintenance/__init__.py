"""Deletion, expiry and checks in an open store."""
