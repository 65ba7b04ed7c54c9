"""RocketMQ's replication protocol: a store that follows a master, and one that feeds followers.

These names do not change between releases; the modules below this package may. Each name is
imported when it is first used.
"""

from cqstore.store.lazy_names import lazy_names

_NAMES = {
    "cqstore.replication.feed.feeder": "Feeder",
    "cqstore.replication.feed.followers": "Followers",
    "cqstore.replication.feed.in_thread": "feeding",
}
__all__, __getattr__, __dir__ = lazy_names(__name__, _NAMES, globals())
