"""Backends by name. They are found by entry point, so nothing here names a package above."""

from importlib.metadata import entry_points

from store.errors import StoreConfigError
from store.queue.consume_queue_store import ConsumeQueueStore

_GROUP = "cqstore.backends"


def backend_names() -> list[str]:
    """Return the names of the installed backends, sorted."""
    return sorted(entry.name for entry in entry_points(group=_GROUP))


def backend(name: str) -> type[ConsumeQueueStore]:
    """Return the class of backend ``name``.

    Raises:
        StoreConfigError: no such backend is installed, or it is not a queue store.
    """
    for entry in entry_points(group=_GROUP, name=name):
        loaded = entry.load()
        if isinstance(loaded, type) and issubclass(loaded, ConsumeQueueStore):
            return loaded
        raise StoreConfigError(f"backend {name!r} ({entry.value}) is not a ConsumeQueueStore")
    raise StoreConfigError(f"no backend {name!r}; installed: {', '.join(backend_names())}")
