"""All consume queues in one RocksDB."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
