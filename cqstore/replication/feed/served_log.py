"""ServedLog: which bytes of its log a master sends, and from which phy offset.

Under ``SYNC_FLUSH``, nothing is sent before it is on disk. RocketMQ sends bytes that are only
written: the master loses them in a power cut and then writes other records in their place, while
slaves keep them. Under ``ASYNC_FLUSH``, the log can lose its last records in a power cut anyway, so
all of it is sent.

Source: RocketMQ ``DefaultHAConnection.WriteSocketService``, ``CommitLog.getData``.
"""

from cqstore.replication.errors import OutsideLogError
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

NEAR_BYTES = 16 << 20
"""Size of the end of the log that is surely in memory and so is read without a thread."""


class ServedLog:
    """The log of one store, limited to what followers may have. Any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._log = components_of(store).log
        self._sync = store.config.syncs_each_put

    def start(self, request: int) -> int:
        """Return the phy offset at which to start for a ``request``; 0: the last log file.

        Raises:
            OutsideLogError: the log does not have the requested phy offset.
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
        """Return the start or end of the log, for a ``request`` before or after it."""
        return min(max(request, self._log.min_phy_offset(), 0), self._log.max_phy_offset())

    def is_near(self, phy_offset: int) -> bool:
        """Return whether the bytes at ``phy_offset`` were written recently."""
        return self._log.max_phy_offset() - phy_offset <= NEAR_BYTES

    def size_at(self, phy_offset: int) -> int:
        """Return how many bytes of one file may be sent from ``phy_offset`` on; 0: none yet.

        -1: the bytes have expired.
        """
        return self._found(phy_offset)[1]

    def read_near(self, phy_offset: int, limit: int) -> bytes:
        """Return all that may be sent from ``phy_offset`` on, if it is at most ``limit`` bytes.

        Empty if it is more, if it is nothing, or if ``phy_offset`` is not near the log's end.

        Raises:
            StoreError: the bytes cannot be read, or the store is closed.
        """
        file, size = self._found(phy_offset)
        if file is None or not 0 < size <= limit or not self.is_near(phy_offset):
            return b""
        return file.read(phy_offset - file.file_from_offset, size)

    def _found(self, phy_offset: int) -> tuple[MappedFile | None, int]:
        """Return the file at ``phy_offset``, and the result of ``size_at``."""
        end = self._log.max_phy_offset()
        if self._sync:
            end = min(end, self._log.flushed_phy_offset())
        if end <= phy_offset:
            return None, 0
        file = self._log.files.find(phy_offset)
        if file is None:
            return None, -1
        readable = file.file_from_offset + file.readable_position  # later bytes are still buffered
        return file, max(min(end, readable) - phy_offset, 0)

    def read(self, phy_offset: int, limit: int) -> bytes:
        """Return at most ``limit`` of the bytes that ``size_at`` counts.

        Raises:
            OutsideLogError: the bytes have expired.
            StoreError: the bytes cannot be read, or the store is closed.
        """
        file, size = self._found(phy_offset)
        if file is None:
            low = self._log.min_phy_offset()
            raise OutsideLogError(
                f"the follower is too slow: it needs the log from {phy_offset}, but older files"
                f" have expired and the log now begins at {low}"
            )
        return file.read(phy_offset - file.file_from_offset, min(size, limit))
