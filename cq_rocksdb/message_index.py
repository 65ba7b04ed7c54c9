"""Reads the index of keys of a broker with ``indexRocksDBEnable``, in ``rocksdbstore``.

A database key contains an hour, a topic, the kind of key, the key itself, the message's unique key
and the phy offset. Texts are joined with an unescaped @, so a found record may have another key.

Source: RocketMQ ``MessageRocksDBStorage``, ``IndexRocksDBRecord``, ``IndexRocksDBStore``.
"""

from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from cqstore.cq_rocksdb.engine.raw_builder import DEFAULT_FAMILY
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.cq_rocksdb.folders import INDEX_FOLDER
from cqstore.store.errors import CorruptionError
from cqstore.store.service.offline.database_copy import is_database

_HOUR_MS = 3_600_000
_LONG = Struct(">q")
_AT = b"@"
_BUILT_TO = b"lastOffsetPy"
_BEHIND_ALL_HOURS = 1 << 62
"""Larger than any time in ms; keys that are not records are text and sort after it."""


class MessageIndex:
    """The index of one store, at the time of its opening. One thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Open the database in ``folder``.

        Raises:
            CorruptionError: RocksDB cannot read the database.
            StoreIOError: the database cannot be opened.
        """
        self.folder = folder
        self._database = RawDatabase(folder)
        self.fault = self._database.fault

    @property
    def is_used(self) -> bool:
        """Return whether the index has records: every broker creates the database."""
        return next(self._database.items(DEFAULT_FAMILY), None) is not None

    @property
    def built_to(self) -> int | None:
        """Return the phy offset of the last indexed record.

        Raises:
            CorruptionError: the value is not a number.
        """
        for key, value in self._database.items(DEFAULT_FAMILY, _BUILT_TO):
            if key != _BUILT_TO:
                break
            return self._number(key, value)
        return None

    def phy_offsets(self, topic: str, key: str, begin: int, end: int) -> Iterator[int]:
        """Yield the records for ``key``, newest first; both times are store times in ms, inclusive.

        Raises:
            CorruptionError: a block or a value cannot be read.
        """
        words = [text.encode(errors="surrogatepass") for text in (topic, key)]
        names = [_AT.join((b"", words[0], kind, words[1], b"")) for kind in (b"K", b"U")]
        for hour in self._hours(begin, end):
            found = {
                phy_offset
                for name in names
                for phy_offset, stored in self._records(_LONG.pack(hour) + name)
                if begin <= stored <= end
            }
            yield from sorted(found, reverse=True)

    def close(self) -> None:
        """Close the database; may be called again."""
        self._database.close()

    def _hours(self, begin: int, end: int) -> Iterator[int]:
        """Yield the hours that have records, the latest first."""
        behind = _LONG.pack(min(max(end, 0) + 1, _BEHIND_ALL_HOURS))
        while (last := self._database.last_key_before(DEFAULT_FAMILY, behind)) is not None:
            if len(last) <= _LONG.size or last[_LONG.size : _LONG.size + 1] != _AT:
                behind = last  # unknown keys of a newer release
                continue
            (hour,) = _LONG.unpack_from(last)
            if hour + _HOUR_MS <= begin:
                return
            yield hour
            behind = _LONG.pack(hour)

    def _records(self, prefix: bytes) -> Iterator[tuple[int, int]]:
        """Yield phy offset and store time of each record whose key begins with ``prefix``."""
        for key, value in self._database.items(DEFAULT_FAMILY, prefix):
            if not key.startswith(prefix):
                return
            if len(key) >= len(prefix) + _LONG.size:
                yield _LONG.unpack_from(key, len(key) - _LONG.size)[0], self._number(key, value)

    def _number(self, key: bytes, value: bytes) -> int:
        """Return the value of an entry as a number.

        Raises:
            CorruptionError: the value is not a number.
        """
        if len(value) != _LONG.size:
            raise CorruptionError(
                f"the index entry {key!r} has an invalid value", path=self.folder,
                expected=f"{_LONG.size} bytes", got=f"{len(value)} bytes",
            )  # fmt: skip
        number: int = _LONG.unpack(value)[0]
        return number


def open_message_index(root: Path) -> MessageIndex | None:
    """Return the index of the store in ``root``, to be closed by the caller; ``None``: never built.

    Raises:
        CorruptionError, StoreIOError: as for ``MessageIndex``.
    """
    folder = root / INDEX_FOLDER
    if not is_database(folder):
        return None
    index = MessageIndex(folder)
    try:
        if index.is_used:
            return index
    except BaseException:
        index.close()
        raise
    index.close()
    return None
