"""ServedStore: the store that is read, opened again while another process appends to it.

A store is opened read-only, or is an open store of this process. In the first case its log is
checked for new records a few times a second; if there are some, the store is opened again, and
requests that began before finish with the store as it was.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from time import monotonic

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreError, os_errors
from cqstore.store.files import reading
from cqstore.store.log.log_files import LogFiles, list_log_files, log_file_at
from cqstore.store.path_kind import exists
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.store_snapshots import StoreSnapshots

_LOG = StoreLogger(__name__)
POLL_SECONDS = 0.2
_SHARE = 10
"""A store that takes one second to open is opened again every ten seconds at most."""
_HEAD_BYTES = 8


class ServedStore:
    """The newest open of one store. ``reading`` is for any thread, ``renew`` for one."""

    def __init__(
        self, store: MessageStore, open_again: Callable[[], MessageStore] | None = None
    ) -> None:
        """Serve ``store``; ``open_again`` opens the current state of a read-only store."""
        self._snapshots = StoreSnapshots(store, open_again or (lambda: store))
        self.is_followed = store.read_only and open_again is not None
        """Whether the store is opened again when another process has appended to it."""
        self._end = store.max_phy_offset()
        self._files: LogFiles = {}
        self._next_at = 0.0
        self.renewals = 0
        """How often the store was opened again."""

    @property
    def newest(self) -> MessageStore:
        """Return the newest open, for attributes that do not change."""
        return self._snapshots.newest

    def reading(self) -> AbstractContextManager[MessageStore]:
        """Return the newest open, which stays open inside the block."""
        return self._snapshots.reading()

    def renew(self) -> bool:
        """Open the store again if its log has changed; return whether it was opened.

        A store that cannot be opened at the moment is served as it was, and tried again.
        """
        if not self.is_followed or monotonic() < self._next_at:
            return False
        started = monotonic()
        try:
            if not self._has_changed():
                return False
            self._snapshots.refresh()
        except StoreError as exc:
            _LOG.warning("cannot open the store again, serving it as it was: %s", exc)
            self._next_at = monotonic() + 1
            return False
        with self._snapshots.reading() as store:
            self._end = store.max_phy_offset()
        self._files = {}
        self.renewals += 1
        self._next_at = monotonic() + _SHARE * (monotonic() - started)
        return True

    def close(self) -> None:
        """Close all opens of the store."""
        self._snapshots.close()

    def _has_changed(self) -> bool:
        """Return whether the log has a record at its known end, or lost its first file.

        Raises:
            StoreIOError: a folder or file cannot be read.
        """
        first = next(iter(self._files.values()), None)
        if first is not None and not exists(first[0]):
            return True
        place = log_file_at(self._files, self._end)
        if place is None:
            self._files = list_log_files(components_of(self.newest).layout.log_folders)
            place = log_file_at(self._files, self._end)
        if place is None:
            return False
        start, path, _ = place
        with os_errors("read a commit log file", path), reading(path) as file:
            return any(os.pread(file.fileno(), _HEAD_BYTES, self._end - start))


def unit_time(store: MessageStore, topic: str, queue_id: int, queue_offset: int) -> int:
    """Return the store time of one message of a queue, ms; -1 if it is not in the log."""
    return components_of(store).queues.queue(topic, queue_id).unit_timestamp(queue_offset)
