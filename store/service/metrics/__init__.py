"""Metrics of a store."""
