"""Backends by name."""

from pathlib import Path

from cqstore.store.errors import StoreConfigError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.settings.installed_backends import installed


def backend_names() -> list[str]:
    """Return the names of the installed backends, sorted."""
    return list(installed())


def backend(name: str) -> type[ConsumeQueueStore]:
    """Return the class of backend ``name``.

    Raises:
        StoreConfigError: the backend is not installed, or is not a queue store.
    """
    loaded = installed().get(name)
    if loaded is None:
        raise StoreConfigError(f"no backend {name!r}; installed: {', '.join(backend_names())}")
    if not issubclass(loaded, ConsumeQueueStore):
        raise StoreConfigError(f"backend {name!r} ({loaded}) is not a ConsumeQueueStore")
    return loaded


def backends() -> list[type[ConsumeQueueStore]]:
    """Return the classes of the installed backends, sorted by name."""
    return [backend(name) for name in backend_names()]


def queue_folders(paths: StorePaths) -> list[Path]:
    """Return every folder that may contain queues, without duplicates."""
    return list(dict.fromkeys(folder for kind in backends() for folder in kind.folders(paths)))


def unlike_others(paths: StorePaths) -> Path | None:
    """Return a folder of queues that only one backend supports, ``None`` without such queues."""
    found = (kind.unlike_others(paths) for kind in backends())
    return next((folder for folder in found if folder is not None), None)
