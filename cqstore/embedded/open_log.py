"""Opening an embedded log."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from cqstore.embedded.consumer_offsets import INTERVAL_SECONDS
from cqstore.embedded.log import QUEUES, EmbeddedLog
from cqstore.store.errors import StoreLockedError
from cqstore.store.service.dispatching.dispatcher_list import CommitLogDispatcher
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.writing.put_hooks import PutMessageHook
from cqstore.store.settings.config import StoreConfig


def open_log(
    root: Path | str,
    *,
    backend: str | None = None,
    config: StoreConfig | None = None,
    queues: int = QUEUES,
    commit_seconds: float = INTERVAL_SECONDS,
    read_only: bool = False,
    put_hooks: Sequence[PutMessageHook] = (),
    dispatchers: Sequence[CommitLogDispatcher] = (),
) -> EmbeddedLog:
    """Open the log in ``root``; a new one is made if there is none.

    ``backend`` keeps the queues of a new log: ``file`` (the default) or ``rocksdb``. ``config`` is
    as for ``MessageStore``: files of a gigabyte and 72 hours of messages, unless it says otherwise.
    ``queues`` is how many a new topic gets. What groups commit is on disk ``commit_seconds`` later.
    With ``read_only`` nothing is changed, also beside a process that writes: ``read``, ``refresh``
    and ``tail`` without a group are all then. ``put_hooks`` and ``dispatchers`` are as for
    ``MessageStore``.

    Raises:
        StoreLockedError: it is open, here or in another process, to which its groups belong.
        StoreError: as for ``MessageStore.open``; topics or offsets cannot be read.
    """
    open_store = partial(
        MessageStore.open, root, config, backend=backend, read_only=read_only,
        put_hooks=put_hooks, dispatchers=dispatchers,
    )  # fmt: skip
    try:
        store = open_store()
    except StoreLockedError as exc:
        raise StoreLockedError(
            f"{exc.reason}: a log and its groups belong to one process (read_only=True reads"
            " beside it)", path=exc.path,
        ) from exc  # fmt: skip
    try:
        return EmbeddedLog(store, queues, commit_seconds, open_store)
    except BaseException:
        store.close()
        raise
