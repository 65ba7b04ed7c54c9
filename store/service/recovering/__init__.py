"""Restoring a store: recovery at every open, rebuild of queues and index, repair."""
