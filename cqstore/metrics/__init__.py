"""Metrics of open stores for Prometheus (extra ``metrics``); start with ``register``.

The names in this package do not change between releases; its modules may. Each name is imported
when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
