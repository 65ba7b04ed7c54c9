"""Opening an embedded log."""

from functools import partial
from pathlib import Path

from cqstore.embedded.consumer_offsets import INTERVAL_SECONDS
from cqstore.embedded.log import QUEUES, EmbeddedLog
from cqstore.store.errors import StoreLockedError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.options import StoreHooks
from cqstore.store.settings.config import StoreConfig


def open_log(
    root: Path | str,
    config: StoreConfig | None = None,
    *,
    backend: str | None = None,
    read_only: bool = False,
    hooks: StoreHooks | None = None,
    queues: int = QUEUES,
    commit_seconds: float = INTERVAL_SECONDS,
) -> EmbeddedLog:
    """Open the log in ``root``. If there is none, create one, unless ``read_only``.

    Args:
        root: root folder of the log.
        config: settings, as for ``MessageStore.open``; default: files of a gigabyte, and 72 hours
            of messages.
        backend: backend that keeps the queues of a new log: ``file`` (the default) or ``rocksdb``.
        read_only: change nothing, also beside a process that writes. The log then has only
            ``read``, ``refresh``, and ``tail`` without a group.
        hooks: put hooks and dispatchers; default: those of installed packages.
        queues: number of queues of a new topic.
        commit_seconds: time after which a commit of a group is on disk.

    Raises:
        StoreLockedError: it is open, here or in another process, to which its groups belong.
        StoreError: as for ``MessageStore.open``; topics or offsets cannot be read.
    """
    open_store = partial(
        MessageStore.open, root, config, backend=backend, read_only=read_only, hooks=hooks
    )
    try:
        store = open_store()
    except StoreLockedError as exc:
        raise StoreLockedError(
            f"{exc.reason}: only one process can write a log and use its groups. To read it"
            " meanwhile, use read_only=True", path=exc.path,
        ) from exc  # fmt: skip
    try:
        return EmbeddedLog(store, queues, commit_seconds, open_store)
    except BaseException:
        store.close()
        raise
