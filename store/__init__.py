"""The log, and the interface of the consume queues: a RocketMQ-compatible message store.

Programs import the package ``cqstore``.
"""
