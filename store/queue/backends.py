"""Backends by name."""

from collections.abc import Container, Iterable
from pathlib import Path

from cqstore.store.errors import RefusedStoreError, StoreConfigError, os_errors
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.sentences import some_of
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


def topics_only_as_files(paths: StorePaths) -> list[str]:
    """Return the topics that only one backend supports, sorted.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    folder = unlike_others(paths)
    if folder is None:
        return []
    with os_errors("list a queue folder", folder):
        return sorted(path.name for path in folder.iterdir())


def only_as_files(
    paths: StorePaths, names: Iterable[str] = (), left: Container[str] = ()
) -> RefusedStoreError | None:
    """Return the refusal to move topics that only one backend supports, with the way to do it.

    ``None`` without such topics, or if each of the backends ``names`` supports them. Topics in
    ``left`` stay in files by the operator's decision, and do not count.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    folder = unlike_others(paths)
    supported = [backend(name).unlike_others(paths) is not None for name in names]
    topics = [repr(each) for each in topics_only_as_files(paths) if each not in left]
    if not topics or (supported and all(supported)):
        return None
    return RefusedStoreError(
        f"BatchCQ topics exist only as files: {some_of(topics[:_MAX_TOPICS], len(topics))}. A"
        f" broker cannot serve them from RocksDB. {MOVE_AS_PLAIN}",
        path=folder,
    )


MOVE_AS_PLAIN = (
    "Export each one (cqstore export DIR --topic T --to FILE), delete it (cqstore topics DIR T"
    " --delete --yes), and import FILE after the move: it contains plain messages. Or leave it in"
    " files, where no broker with RocksDB serves it: cqstore migrate plan DIR --leave T"
)
"""What to do with a BatchCQ topic before queues move to RocksDB."""
_MAX_TOPICS = 5
