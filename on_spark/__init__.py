"""Running on Spark: the session that tables and tasks share, and the daemon of its workers."""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
