"""Timer and half messages that a broker keeps in the database ``rocksdbstore``.

Source: RocketMQ ``MessageRocksDBStorage``, ``TimerRocksDBRecord``, ``TransRocksDBRecord``.
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from cqstore.broker.pending.pending_parts import PendingPart, PendingSource
from cqstore.cli.progress import counted
from cqstore.cq_rocksdb.engine.raw_database import RawDatabase
from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import CorruptionError
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

FOLDER, _TIMER, _TRANS = "rocksdbstore", "timer", "trans"
_DELIVERED, _SCANNED = b"timeline_checkpoint", b"sys_topic_scan_offset_checkpoint"
_LONG = Struct(">q")
_TIMER_VALUE = 12
"""Timer record size in bytes; other lengths are checkpoints, including those of newer releases."""


class RocksDBPending(NamedTuple):
    """Pending messages in ``rocksdbstore``."""

    parts: list[PendingPart]
    """Timer and half messages, without empty parts."""
    timer_offset: int
    """Next offset of the timer queue to copy into the database; 0 if there is none."""


def rocksdb_pending(paths: StorePaths, now: int) -> RocksDBPending:
    """Return the pending messages in ``rocksdbstore``; ``now`` in ms.

    Raises:
        CorruptionError: the database cannot be read.
    """
    folder = paths.root / FOLDER
    if not exists(folder / CURRENT):
        return RocksDBPending([], 0)
    with RawDatabase(folder) as database:
        if database.fault is not None:
            raise database.fault
        timer, half = _timer(database, now), _trans(database)
    return RocksDBPending([part for part in (timer, half) if part.pending], timer.position)


def _timer(database: RawDatabase, now: int) -> PendingPart:
    """Count the keys ``time | unique key`` with times that are not delivered yet."""
    part = PendingPart(PendingSource.ROCKSDB_TIMER, 0, 0, 0)
    rows = list(_counted(database, _TIMER))
    numbers = {key: value for key, value in rows if key in {_DELIVERED, _SCANNED}}
    for key, value in numbers.items():
        if len(value) != _LONG.size:
            raise CorruptionError(
                f"{key.decode()!r} in column family {_TIMER!r} is not a number",
                path=database.folder, expected=f"{_LONG.size} bytes", got=f"{len(value)} bytes",
            )  # fmt: skip
    (delivered,) = _LONG.unpack(numbers.get(_DELIVERED, bytes(_LONG.size)))
    (part.position,) = _LONG.unpack(numbers.get(_SCANNED, bytes(_LONG.size)))
    for key, value in rows:
        if len(value) != _TIMER_VALUE or len(key) < _LONG.size:
            continue
        (due,) = _LONG.unpack_from(key)
        if due >= delivered:
            part.pending += 1
            part.overdue += due <= now
            part.first_due = due if part.first_due is None else min(due, part.first_due)
            part.last_due = due if part.last_due is None else max(due, part.last_due)
    return part


def _trans(database: RawDatabase) -> PendingPart:
    """Count the keys ``phy offset | @topic@unique key``; an op message removes its key."""
    part = PendingPart(PendingSource.ROCKSDB_HALF, 0, 0, 0)
    part.pending = sum(
        key[_LONG.size : _LONG.size + 1] == b"@" and len(value) == _LONG.size
        for key, value in _counted(database, _TRANS)
    )
    return part


def _counted(database: RawDatabase, family: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows of a column family, and show how many were read."""
    label = f"reading column family {family} of {FOLDER}"
    return counted(database.items(family), label, database.keys_estimate(family), "keys")
