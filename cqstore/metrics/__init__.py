"""Metrics for Prometheus (extra ``metrics``)."""
