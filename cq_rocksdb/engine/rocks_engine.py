"""RocksEngine: the interface of this package to RocksDB.

The boundary between the queues and a RocksDB library: columns and buffers in, buffers out. An
engine opens the families named in its options. It relies on a unit's key ending in eight bytes of
queue offset and on a value of 28 bytes, but does not interpret them. Every call sees the database
as of its own start; only reads through one ``snapshot`` are consistent with each other.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.engine._append import AppendJob
from cqstore.cq_rocksdb.keys import MAX_TOPIC_BYTES, UNIT_PLACE, max_keys
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.queue.units import MAX_UNITS, QUEUE_UNIT, BlockStop, UnitBatch
from cqstore.store.record.message import CHECKPOINT_TOPIC

_RESERVED = CHECKPOINT_TOPIC.encode()


class Family(StrEnum):
    """The column families of a store's queues, by their names on disk (do not change)."""

    DEFAULT = "default"
    OFFSET = "offset"


@dataclass(slots=True)
class EngineBatch:
    """One atomic write. Applied in this order: ``delete_ranges``, ``deletes``, units, ``puts``.

    Unit *i* has the key ``prefixes[prefix_index[i]]`` + big-endian ``queue_offset[i]`` in family
    ``default`` and the value ``units[i]``. Any order is allowed; key order is fastest.
    """

    prefixes: Sequence[bytes] = ()
    prefix_index: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    queue_offset: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    units: NDArray[np.uint8] = field(
        default_factory=lambda: np.empty((0, QUEUE_UNIT.size), np.uint8)
    )
    """Shape (n, 28), C order."""
    delete_ranges: list[tuple[str, bytes, bytes]] = field(default_factory=list)
    """Family, first key, first key after the range."""
    deletes: list[tuple[str, bytes]] = field(default_factory=list)
    puts: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Key and value, family ``puts_family``."""
    puts_family: str = Family.OFFSET


def append_job(batch: UnitBatch) -> AppendJob:
    """Return the job for a batch, which may contain irregular queues."""
    return AppendJob(
        batch.queues, batch.queue_index, batch.queue_offset, batch.units,
        MAX_UNITS, MAX_TOPIC_BYTES, _RESERVED,  # positional, as keywords would create a dict
    )  # fmt: skip


def job_batch(job: AppendJob) -> EngineBatch:
    """Return what ``job`` writes, for an engine that cannot write it directly."""
    prefixes, numbers, ends = zip(*job.planned(), strict=True)
    places = np.full(job.queues, -1)
    places[list(numbers)] = np.arange(len(numbers))
    index = places[np.frombuffer(job.queue_index, np.int32)]
    rows = np.argsort(index, kind="stable")[np.count_nonzero(index < 0) :]  # in key order
    offsets = np.frombuffer(job.queue_offset, np.int64)
    units = np.frombuffer(job.units, np.uint8).reshape(-1, QUEUE_UNIT.size)
    puts = max_puts(prefixes, np.array(ends))
    return EngineBatch(prefixes, index[rows], offsets[rows], units[rows], puts=puts)


def max_puts(prefixes: Sequence[bytes], ends: NDArray[np.int64]) -> list[tuple[bytes, bytes]]:
    """Return the ``max`` entries of queues; ``ends``: phy offset and queue offset of each."""
    values = row_bytes(np.ascontiguousarray(ends).astype(">i8").view(np.uint8))
    return list(zip(max_keys(prefixes), values, strict=True))


def unit_columns(batch: EngineBatch) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of the units of ``batch``, a pair of lists per key length.

    Keys of one length are rows of one array, so building them needs no Python code per unit.
    """
    if not len(batch.prefix_index):
        return
    lengths = np.fromiter(map(len, batch.prefixes), np.int64, len(batch.prefixes))
    unit_lengths = lengths[batch.prefix_index]
    for length in sorted({*unit_lengths.tolist()}):  # np.unique would import numpy.ma
        same = np.flatnonzero(lengths == length)
        table = np.frombuffer(b"".join([batch.prefixes[i] for i in same.tolist()]), np.uint8)
        row_of = np.zeros(len(lengths), np.int64)
        row_of[same] = np.arange(len(same))
        rows = slice(None) if len(same) == len(lengths) else unit_lengths == length
        keys = np.empty((len(batch.prefix_index[rows]), length + UNIT_PLACE.size), np.uint8)
        keys[:, :length] = table.reshape(-1, length)[row_of[batch.prefix_index[rows]]]
        places = batch.queue_offset[rows].astype(">i8")
        keys[:, length:] = places.view(np.uint8).reshape(-1, UNIT_PLACE.size)
        yield row_bytes(keys), row_bytes(np.ascontiguousarray(batch.units[rows]))


def units_in_key_order(
    prefixes: Sequence[bytes], index: NDArray[np.int64], offsets: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return the indexes that sort the units by key; ``None``: they are sorted.

    Stable, so that of two units with the same key, the later one wins.
    """
    by_key = sorted(range(len(prefixes)), key=prefixes.__getitem__)
    rank = np.empty(len(prefixes), np.int64)
    rank[by_key] = np.arange(len(prefixes))
    ranks = rank[index]
    steps = np.diff(ranks)
    if not ((steps < 0) | ((steps == 0) & (np.diff(offsets) < 0))).any():
        return None
    order: NDArray[np.int64] = np.lexsort((offsets, ranks))
    return order


def row_bytes(table: NDArray[np.uint8]) -> list[bytes]:
    """Return each row of a C-ordered table as bytes."""
    rows: list[bytes] = table.view(f"V{table.shape[1]}").ravel().tolist()
    return rows


class PackedUnits(NamedTuple):
    """Consecutive units, packed in 28 bytes each, and why there are no more of them."""

    data: bytes
    stop: BlockStop
    next_offset: int
    """With ``HOLE``: the offset of the next unit that exists; else the one after the last unit."""


class LiveFile(NamedTuple):
    """One table file of the database."""

    name: str
    size_bytes: int
    level: int
    entries: int
    deletions: int
    """Number of tombstones among the entries."""
    family: str | None
    """Family; ``None``: the engine does not report it."""


class TableWriter(Protocol):
    """Writes one table (SST) file to be ingested; keys must be added in ascending order."""

    def put(self, key: bytes, value: bytes) -> None:
        """Add one entry, whose key must be greater than all earlier keys."""

    def put_units(self, prefix: bytes, queue_offset: int, units: NDArray[np.uint8]) -> None:
        """Add consecutive units of one queue; ``units`` has the shape (n, 28), C order."""

    def finish(self) -> int:
        """Complete the file and sync it; return its bytes."""


class EngineSnapshot(Protocol):
    """The database as of one moment; any thread may read it while it is held."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``, or ``None``."""

    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill ``target`` as ``RocksEngine.scan_into`` does, with units of that moment."""


class RocksEngine(Protocol):
    """An open RocksDB with the families named in its options; units are in the first, ``default``.

    Any thread may call any method, but only one thread at a time may write. Writes bypass the WAL:
    they are durable after ``flush``. Every method raises ``RocksDBError`` with RocksDB's status if
    RocksDB fails, and ``StoreClosedError`` after ``close``.
    """

    name: ClassVar[str]
    folder: Path
    write_lock: CheckedLock
    """Held during a write, and during a flush of the families one by one."""
    filters_expired: ClassVar[bool]
    """Whether compactions drop units below ``expire_below``; else expired units are deleted."""

    def write(self, batch: EngineBatch) -> None:
        """Apply ``batch``, all of it or nothing; readers see it when this returns."""

    def append_job(self, batch: UnitBatch) -> AppendJob | None:
        """Return the job for a batch; ``None``: the engine cannot write jobs."""

    def append(
        self, job: AppendJob, put: tuple[bytes, bytes], others: EngineBatch | None = None
    ) -> None:
        """Apply ``job``, ``put`` in family ``offset``, and ``others``, as one ``write``."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``; ``None``: there is none."""

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value, or ``None``, of each key, in the order of ``keys``."""

    def search(
        self, prefix: bytes, ends: tuple[int, int], timestamp: int, log: tuple[int, int],
        *, upper: bool,
    ) -> int | None:  # fmt: skip
        """Return the result of ``search_offset``, in one call; ``None``: not supported.

        A unit has the store time -1 if it is missing, or its record is outside ``log``.
        """

    def scan_units(self, prefix: bytes, queue_offset: int, count: int) -> PackedUnits:
        """Return at most ``count`` (one or more) consecutive units of a queue from an offset on.

        Stops: ``LIMIT``: ``count`` units were read; ``HOLE``: a unit is missing and a later one
        exists; ``END``: no further unit of the queue exists.

        Raises:
            CorruptionError: a value is shorter than a unit.
        """

    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill the rows of ``target`` with consecutive units; return rows, stop, next offset.

        ``target`` has the shape (n, 28), C order; the stops are those of ``scan_units``.
        """

    def first_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return offset and value of the first unit of a queue at or after ``queue_offset``."""

    def last_unit(self, prefix: bytes, queue_offset: int) -> tuple[int, bytes] | None:
        """Return offset and value of the last unit of a queue at or before ``queue_offset``."""

    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        r"""Return at most ``limit`` entries of ``start <= key < end``, in key order.

        Fewer than ``limit``: there are no more. Nothing stays open after the call; continue
        from the last key + ``b"\\0"``.
        """

    def flush(self) -> None:
        """Make all writes durable; on disk, an offset entry never exists without its units."""

    def compact(self, family: str) -> None:
        """Compact a whole family, including its last level."""

    def cancel_compaction(self) -> bool:
        """Make a running ``compact`` return soon; at most a part of its work is lost.

        False: this engine cannot cancel; the compaction continues to its end.
        """

    def expire_below(self, min_phy_offset: int) -> None:
        """Make compactions drop units of records below ``min_phy_offset``, which is never lowered.

        Does nothing without ``filters_expired``. The first eight bytes of a unit are the phy offset
        of its record.
        """

    @property
    def dropped_units(self) -> int:
        """Return how many units compactions have dropped since the database was opened."""

    def table_writer(self, family: str, path: Path) -> TableWriter:
        """Begin a table file at ``path``, with the options of ``family``."""

    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Ingest table files, all or none; durable on return. The files are moved."""

    def snapshot(self) -> AbstractContextManager[EngineSnapshot]:
        """Hold the database as of now while the block runs; ``close`` waits for its end.

        Raises:
            UnsupportedFormatError: the engine does not support snapshots.
        """

    def property_value(self, family: str, name: str) -> str | None:
        """Return one of RocksDB's properties, such as ``rocksdb.estimate-num-keys``."""

    def approximate_size(self, family: str, start: bytes, end: bytes) -> int | None:
        """Return the approximate bytes of a range in table files; ``None``: not reported."""

    def live_files(self) -> list[LiveFile]:
        """Return the table files of all families."""

    def versions(self) -> dict[str, str]:
        """Return the versions in use, label → version."""

    def close(self, *, flush: bool = True) -> None:
        """Wait for running calls, refuse new ones, flush if asked for, release everything.

        Everything is released even if the flush fails. A second call does nothing. If a signal
        handler calls it during another call of the same thread, that call returns a result or
        raises ``StoreClosedError``.

        Raises:
            NestedCallError: this thread is in the middle of a write; nothing was done.
        """
