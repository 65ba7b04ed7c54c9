"""Replication: a store follows another one over RocketMQ's wire."""
