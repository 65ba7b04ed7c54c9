"""Replication: a store follows another one over RocketMQ's wire."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless the embedder asks
