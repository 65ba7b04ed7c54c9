"""Stores as tables: Arrow streams (``cqstore.scan``), Spark data sources, SQL queries.

``register`` registers the data sources with a Spark session (extra ``spark``).

These names do not change between releases; the modules below this package may. Each is imported
when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
