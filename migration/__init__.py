"""Moving queues between backends, and proving them equal."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
