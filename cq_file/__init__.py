"""Consume queues in fixed-size files of 20-byte units, one folder a queue."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
