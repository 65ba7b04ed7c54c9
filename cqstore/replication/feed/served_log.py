"""ServedLog: what a master sends of its log, and from where on.

Under ``SYNC_FLUSH`` nothing is sent before it is on disk. RocketMQ sends what was written: a power
cut takes it from the master, which then gives its place to other records, while slaves keep it.
Under ``ASYNC_FLUSH`` the log loses its last records in a power cut anyhow, and all of it is sent.

Source: RocketMQ ``DefaultHAConnection.WriteSocketService``, ``CommitLog.getData``.
"""

from cqstore.replication.errors import OutsideLogError
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

NEAR_BYTES = 16 << 20
"""Of the log's end: surely in memory, so they are read without a thread."""


class ServedLog:
    """The log of one store, as its followers may have it. Any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._log = components_of(store).log
        self._sync = store.config.syncs_each_put

    def start(self, request: int) -> int:
        """Return from where a slave is served that asked for ``request``; 0: its last file.

        Raises:
            OutsideLogError: the log has no such place.
        """
        end = self._log.max_phy_offset()
        if request == 0:
            return end - end % self._log.files.file_size
        low = max(self._log.min_phy_offset(), 0)
        if not low <= request <= end:
            why = "has records after its end" if request > end else "needs records before its start"
            raise OutsideLogError(
                f"the follower requested the log from {request}, but this log is from {low} to"
                f" {end}: the follower {why}"
            )
        return request

    def nearest(self, request: int) -> int:
        """Return the begin or end of the log, for a ``request`` before or after it."""
        return min(max(request, self._log.min_phy_offset(), 0), self._log.max_phy_offset())

    def is_near(self, phy_offset: int) -> bool:
        """Return whether the bytes there were written recently."""
        return self._log.max_phy_offset() - phy_offset <= NEAR_BYTES

    def size_at(self, phy_offset: int) -> int:
        """Return how many bytes of one file may be sent from there on; 0: none yet.

        -1: they have left the log.
        """
        return self._found(phy_offset)[1]

    def read_near(self, phy_offset: int, limit: int) -> bytes:
        """Return all that may be sent from there on; empty if it is none, or more than ``limit``.

        Empty as well where it is not near the end of the log.

        Raises:
            StoreError: they cannot be read, or the store is closed.
        """
        file, size = self._found(phy_offset)
        if file is None or not 0 < size <= limit or not self.is_near(phy_offset):
            return b""
        return file.read(phy_offset - file.file_from_offset, size)

    def _found(self, phy_offset: int) -> tuple[MappedFile | None, int]:
        """Return the file there, and what ``size_at`` does."""
        end = self._log.max_phy_offset()
        if self._sync:
            end = min(end, self._log.flushed_phy_offset())
        if end <= phy_offset:
            return None, 0
        file = self._log.files.find(phy_offset)
        if file is None:
            return None, -1
        readable = file.file_from_offset + file.readable_position  # what is more waits in memory
        return file, max(min(end, readable) - phy_offset, 0)

    def read(self, phy_offset: int, limit: int) -> bytes:
        """Return at most ``limit`` of the bytes that ``size_at`` counts.

        Raises:
            OutsideLogError: they have left the log.
            StoreError: they cannot be read, or the store is closed.
        """
        file, size = self._found(phy_offset)
        if file is None:
            low = self._log.min_phy_offset()
            raise OutsideLogError(
                f"the follower is too slow: it needs the log from {phy_offset}, but older files"
                f" have expired and the log now begins at {low}"
            )
        return file.read(phy_offset - file.file_from_offset, min(size, limit))
