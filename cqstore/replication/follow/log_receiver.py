"""LogReceiver: verifies that bytes from a master continue this log, then appends them.

A log that has bytes requests its own last bytes again, and nothing is appended or acknowledged
before the master has sent the same bytes. RocketMQ's slave requests only its end, and so never
detects that the master's log is shorter than its own, or a different log.
"""

from collections.abc import Iterable

from cqstore.replication.errors import DivergedError
from cqstore.replication.follow.log_tail_proof import tail_begin
from cqstore.replication.wire import Piece, outside_log
from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

VERIFY_TAIL_BYTES = 64 << 10
"""Minimum number of last bytes that are requested again; the last record alone would suffice."""
READ_BYTES = 1 << 20
"""Maximum number of bytes that are read and processed at once."""
_RECORD_ROOM = 64 << 10
"""Maximum size of a record without its body."""
_KEPT = "the master's bytes were not appended, and nothing was removed"


def is_empty(log: CommitLog) -> bool:
    """Return whether a log has no byte; it may have a file without a record."""
    return log.max_phy_offset() <= max(log.min_phy_offset(), 0)


class LogReceiver:
    """Appends the bytes of one connection to the store. Any thread, but one call at a time.

    Keeps less than one record in memory: the beginning of an incomplete record.
    """

    def __init__(
        self, store: MessageStore, verify_tail_bytes: int = VERIFY_TAIL_BYTES, *, minimum: int = 0
    ) -> None:
        """Begin at the end of ``store``, to which nothing else may append.

        ``minimum`` is the first phy offset that the master can send; bytes before it are not
        requested.
        """
        log = components_of(store).log
        log.commit()  # so that buffered bytes can be compared
        end, is_new = log.max_phy_offset(), is_empty(log)
        self._store = store
        self._end = end  # end of this log, where ``_rest`` begins
        self._rest = b""
        self._wanted = 1  # minimum size of ``_rest`` for the next attempt to append
        # The size limit must not depend on how bytes arrive: larger records never arrive at once.
        self._limit = max(store.config.max_message_size, READ_BYTES) + _RECORD_ROOM + BLANK_SIZE
        begin = max(tail_begin(log, verify_tail_bytes), min(end, 1), minimum)
        self.request = 0 if is_new else begin
        """Phy offset to request from the master. 0 would request the start of its last file, so a
        log that has bytes never requests 0."""
        self._next = None if is_new else self.request
        """Phy offset of the next byte; ``None`` until the start of a new log is known."""
        self.heartbeats = 0
        """Number of heartbeats since the last received byte."""
        self.body_bytes = 0
        """Number of bytes received, including those that were already here."""

    @property
    def is_verified(self) -> bool:
        """Return whether the master has sent the same bytes as the end of this log."""
        return self._next is not None and self._next >= self._end

    @property
    def next_phy_offset(self) -> int:
        """Return the phy offset of the next byte from the master."""
        return self.request if self._next is None else self._next

    @property
    def is_torn(self) -> bool:
        """Return whether an incomplete record was received."""
        return bool(self._rest)

    def receive(self, pieces: Iterable[Piece]) -> None:
        """Compare and append the bytes of ``pieces``, at most ``READ_BYTES``.

        The resulting log does not depend on how the bytes are split.

        Raises:
            DivergedError: the bytes do not continue this log. Bytes before that are appended.
            WireError: raised by ``pieces``. Bytes before that are appended.
            DiskFullError: there is no space for the next file; bytes before that are appended.
        """
        fresh = [self._rest]
        try:
            for piece in pieces:
                fresh.append(self._beyond_own(piece))  # noqa: PERF401 - kept when one is refused
        finally:
            self._rest = b"".join(fresh)
            self._append()

    def divergence(self, last_file: range | None = None, found: str = "") -> DivergedError:
        """Return the error for a master that sends nothing, although its log ends elsewhere.

        ``last_file``: the phy offsets of its last log file, if known. ``found``: text about the
        master's log, used instead.
        """
        at = self.next_phy_offset
        if found:
            pass
        elif last_file is not None and last_file.start > at:
            found = (
                f"the master no longer has offset {at}: its last file begins at"
                f" {last_file.start}, its log ends at {last_file.stop}"
            )
        elif at > self.request:
            found = f"the master's ends at {at}"
        elif last_file is not None and last_file.stop <= at:
            found = f"the master's ends at {last_file.stop}"
        else:
            found = f"the master has no byte at {at}: its log ends before it, or begins after it"
        return DivergedError(
            f"this log ends at {self._end}, but {found}; nothing was removed. If the master lost"
            " records, keep this log. To start over, follow into an empty folder",
            phy_offset=at,
        )

    # ---- internal

    def _beyond_own(self, piece: Piece) -> bytes:
        """Return the bytes of ``piece`` after this log's end; earlier bytes are compared."""
        if self._next is None:
            self._next = self._end = self._first(piece.phy_offset)
        if piece.phy_offset != self._next:
            raise self._elsewhere(piece, self._next)
        if not piece.data:
            self.heartbeats += 1
            return b""
        self.heartbeats = 0
        self.body_bytes += len(piece.data)
        own = max(self._end - piece.phy_offset, 0)
        if own:
            self._compare(piece.phy_offset, piece.data[:own])
        self._next += len(piece.data)
        return piece.data[own:]

    def _elsewhere(self, piece: Piece, expected: int) -> DivergedError:
        """Return the error for a piece that does not begin at the expected phy offset."""
        is_first = not (self.body_bytes or self.heartbeats)
        if is_first and (found := outside_log(expected, piece)):
            sentence = self.divergence(found=found).reason
        else:
            sentence = (
                f"the master's log does not continue this log, which ends at {self._end}; {_KEPT}."
                " Is this the master's replication port (haListenPort)?"
            )
        return DivergedError(
            sentence, expected=f"bytes from {expected}", got=f"bytes from {piece.phy_offset}"
        )

    def _first(self, phy_offset: int) -> int:
        """Return where an empty log begins: at the start of the master's last file.

        Raises:
            DivergedError: a file of this store cannot begin there.
        """
        file_size = components_of(self._store).log.files.file_size
        if phy_offset % file_size:
            raise DivergedError(
                "the master's last file begins inside a file of this store: set"
                " mappedFileSizeCommitLog to the master's value (--config)",
                expected=f"a multiple of {file_size}", got=phy_offset,
            )  # fmt: skip
        return phy_offset

    def _compare(self, phy_offset: int, data: bytes) -> None:
        """Compare bytes from the master with the local ones.

        Raises:
            DivergedError: the bytes differ.
        """
        log = components_of(self._store).log
        file_size = log.files.file_size
        at = 0
        while at < len(data):
            here = phy_offset + at
            part = data[at : at + file_size - here % file_size]
            own = bytes(log.view(here, len(part)))
            if own != part:
                raise self._another_log(here, own, part)
            at += len(part)

    def _another_log(self, phy_offset: int, own: bytes, other: bytes) -> DivergedError:
        """Return the error for bytes that differ, with the position of the first one."""
        same = next(at for at, byte in enumerate(own) if byte != other[at])
        return DivergedError(
            f"the master's log differs from this log, which ends at {self._end}; {_KEPT}. Was this"
            " store a master, or were messages put to it? To start over, follow into an empty"
            " folder",
            phy_offset=phy_offset + same, expected=f"byte {own[same]:#04x}",
            got=f"byte {other[same]:#04x}",
        )  # fmt: skip

    def _append(self) -> None:
        """Append the complete records of ``_rest``."""
        while len(self._rest) >= self._wanted:
            try:
                end = self._store.append_to_commit_log(self._end, self._rest)
                self._keep_from(end)
                self._wanted = self._size_of_torn()
            except CorruptionError as exc:
                if self._store.max_phy_offset() > self._end:
                    raise  # the records are in the log: the error is about the queues
                raise self._no_record(exc) from exc

    def _keep_from(self, end: int) -> None:
        end = max(end, self._end)  # a new log ends at 0 until its first record is complete
        self._rest = self._rest[end - self._end :]
        self._end = end

    def _size_of_torn(self) -> int:
        """Return how many bytes ``_rest`` must have for the next attempt to append."""
        if len(self._rest) < BLANK_SIZE:
            return BLANK_SIZE
        file_size = components_of(self._store).log.files.file_size
        left = file_size - self._end % file_size
        size = record_span(self._rest, 0, left, self._end) or left
        if size > self._limit:
            raise DivergedError(
                "the master's record is too large for this store. If the master's maxMessageSize is"
                " larger, set it here to the same value (--config)",
                phy_offset=self._end, expected=f"at most {self._limit} bytes", got=f"{size} bytes",
            )  # fmt: skip
        return size

    def _no_record(self, exc: CorruptionError) -> CorruptionError:
        """Append the records before the invalid bytes; return the error for the invalid bytes."""
        if isinstance(exc, DivergedError):
            return exc
        while exc.phy_offset is not None and exc.phy_offset > self._end:
            good = self._rest[: exc.phy_offset - self._end]
            try:
                self._keep_from(self._store.append_to_commit_log(self._end, good))
            except CorruptionError as earlier:
                exc = earlier
        return DivergedError(
            f"cannot append the master's bytes: {exc.reason}. This log ends at {self._end}. If the"
            " master's mappedFileSizeCommitLog is not"
            f" {components_of(self._store).log.files.file_size}, set it here to the same value"
            " (--config)",
            phy_offset=self._end, expected=exc.expected, got=exc.got,
        )  # fmt: skip
