"""Traces: the operations of each workload, derived from the store that is compared."""
