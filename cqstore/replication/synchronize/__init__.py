"""Replicates a master's metadata from its broker: topics, groups and offsets."""
