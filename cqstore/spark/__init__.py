"""Running on Spark: the session of tables and tasks, and the daemon of its workers.

These names do not change between releases; the modules below this package may. Each is imported
when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
