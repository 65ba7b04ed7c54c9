"""Pulls, queries and searches."""
