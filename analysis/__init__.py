"""Stores as tables: Spark data sources over the log and the queues, and questions in SQL.

``spark`` has the sources themselves (``register``); everything below it knows nothing of Spark.
"""

import logging

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
