"""RecordStream: the records of a master's log, as they arrive on one connection.

No store is involved: at most one incomplete record is kept in memory.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``.
"""

from collections.abc import Iterator
from struct import Struct

from cqstore.replication.errors import WireError
from cqstore.replication.wire import Piece
from cqstore.store.record.decoder import StoredMessage, check_record, record_span
from cqstore.store.record.record_layout import BLANK_SIZE, MAGIC_BLANK

MAX_RECORD_BYTES = 64 << 20
"""Maximum size of a record: RocketMQ's default limit for a body is 4 MiB."""
_START = Struct(">ii")


class RecordStream:
    """Parses the bytes of one connection. They must begin with a record."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._wanted = BLANK_SIZE  # minimum size of ``_rest`` for the next record
        self._padding = 0  # bytes of a blank record that are still to come
        self.next_phy_offset: int | None = None
        """Phy offset of the next byte; ``None``: nothing was received yet."""

    @property
    def position(self) -> int:
        """Return the phy offset after the last record, and after the padding that follows it."""
        return (self.next_phy_offset or 0) - len(self._rest) + self._padding

    def feed(self, piece: Piece) -> Iterator[StoredMessage]:
        """Yield the records that ``piece`` completes. Iterate over all before the next call.

        Raises:
            WireError: the piece does not continue the previous one.
            CorruptionError: the bytes are not a record.
        """
        if self.next_phy_offset not in {None, piece.phy_offset}:
            raise WireError(
                "the master's bytes do not continue the previous ones",
                expected=f"bytes from {self.next_phy_offset}", got=f"bytes from {piece.phy_offset}",
            )  # fmt: skip
        self.next_phy_offset = piece.phy_offset + len(piece.data)
        padding = min(self._padding, len(piece.data))
        self._padding -= padding
        self._rest += memoryview(piece.data)[padding:]
        if len(self._rest) >= self._wanted:
            yield from self._records(self.next_phy_offset - len(self._rest))

    def _records(self, begin: int) -> Iterator[StoredMessage]:
        """Yield the complete records of ``_rest``, which begins at phy offset ``begin``."""
        data, at = bytes(self._rest), 0
        self._wanted = BLANK_SIZE
        while len(data) - at >= BLANK_SIZE:
            size = self._span(data, at, begin + at)
            if len(data) - at < size:
                self._wanted = size
                break
            if size:
                yield check_record(
                    data[at : at + size], begin + at, check_crc=False, property_crc=False
                )
            else:
                size = self._begin_padding(data, at)
            at += size
        self._rest = bytearray(data[at:])

    def _begin_padding(self, data: bytes, at: int) -> int:
        """Return how many bytes of a blank record are here; the others are skipped later."""
        whole: int = _START.unpack_from(data, at)[0]
        here = min(whole, len(data) - at)
        self._padding = whole - here
        return here

    @staticmethod
    def _span(data: bytes, at: int, phy_offset: int) -> int:
        """Return the size of a record, 0 for the blank record that fills the rest of a file."""
        size, magic_code = _START.unpack_from(data, at)
        is_blank = magic_code == MAGIC_BLANK and size >= BLANK_SIZE
        return record_span(data, at, size if is_blank else MAX_RECORD_BYTES, phy_offset)
