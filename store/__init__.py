"""The log, and the promise that the consume queues keep: a RocketMQ-compatible message store.

What programs import is in the package ``cqstore``.
"""
