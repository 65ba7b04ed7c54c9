"""RocketMQ's replication protocol: a store that follows a master, and one that feeds followers.

These names do not change between releases; the modules below this package may. Each name is
imported when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(globals())
