"""Opens an embedded log."""

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
    """Open the log in ``root``, or create it if there is none and not ``read_only``.

    Close the log, or use it in a ``with`` block. A log that is garbage-collected instead is
    released with a ``ResourceWarning`` and not flushed, see ``MessageStore.open``; commits of the
    last ``commit_seconds`` are lost.

    Args:
        root: root folder of the log.
        config: settings, as for ``MessageStore.open``. By default, log files have 1 GiB and
            messages are kept for 72 hours.
        backend: backend for the queues of a new log: ``file`` (the default) or ``rocksdb``.
        read_only: change nothing; another process may write the log at the same time. Only
            ``read``, ``refresh``, and ``tail`` without a group are available.
        hooks: put hooks and dispatchers; default: those of installed packages.
        queues: number of queues of a new topic.
        commit_seconds: maximum time until the commit of a group is on disk.

    Raises:
        StoreLockedError: the log is open already, in this process or in another one.
        StoreError: as for ``MessageStore.open``, or topics or offsets cannot be read.
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
