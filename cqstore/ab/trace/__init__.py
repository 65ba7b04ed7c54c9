"""Traces: the operations of a workload, recorded in a running store or derived from one."""
