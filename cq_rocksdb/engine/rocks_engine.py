"""RocksEngine: the interface of this package to RocksDB.

The seam between the queues and a RocksDB library: columns and buffers in, buffers out. An engine
opens the families that its options name. It knows that a unit's key ends in eight bytes of queue
offset and that its value has 28 bytes; what they mean is not its business. Every call sees the
database as of its own start; only what is read through one ``snapshot`` agrees.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_rocksdb.keys import UNIT_PLACE
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.queue.units import QUEUE_UNIT, BlockStop, UnitBatch

if TYPE_CHECKING:
    from cqstore.cq_rocksdb.engine._append import AppendJob


class Family(StrEnum):
    """The column families of a store's queues, by their names on disk (do not change)."""

    DEFAULT = "default"
    OFFSET = "offset"


@dataclass(slots=True)
class EngineBatch:
    """One atomic write. Applied in this order: ``delete_ranges``, ``deletes``, units, ``puts``.

    Unit *i* has the key ``prefixes[prefix_index[i]]`` + big-endian ``queue_offset[i]`` in family
    ``default`` and the value ``units[i]``. Any order is right; key order is the fastest.
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


def unit_columns(batch: EngineBatch) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield keys and values of the units of ``batch``, a pair of lists for each length of key.

    Keys of one length are rows of one array: building them is no work a unit in Python.
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
    """Return the order of the units' keys; ``None``: it is theirs already.

    Stable, so that of two units of one key the one given later wins.
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
    """Return each row of a C-ordered table as its bytes."""
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
    """Tombstones among the entries."""
    family: str | None
    """``None``: the engine does not report it."""


class TableWriter(Protocol):
    """Writes one table (SST) file, to be ingested; keys come in ascending order."""

    def put(self, key: bytes, value: bytes) -> None:
        """Add one entry, whose key is greater than all before."""

    def put_units(self, prefix: bytes, queue_offset: int, units: NDArray[np.uint8]) -> None:
        """Add consecutive units of one queue; ``units`` has the shape (n, 28), C order."""

    def finish(self) -> int:
        """Complete the file and sync it; return its bytes."""


class EngineSnapshot(Protocol):
    """The database as of one moment; any thread may read it while it is held."""

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``, ``None`` if there was none."""

    def scan_into(
        self, prefix: bytes, queue_offset: int, target: NDArray[np.uint8]
    ) -> tuple[int, BlockStop, int]:
        """Fill ``target`` as ``RocksEngine.scan_into`` does, with units of that moment."""


class RocksEngine(Protocol):
    """An open RocksDB with the families that its options name, units in the first, ``default``.

    Any thread may call any method; writes come from one thread at a time. Writes go round the WAL:
    they are durable after ``flush``. Every method raises ``RocksDBError`` with RocksDB's status if
    RocksDB refuses, and ``StoreClosedError`` after ``close``.
    """

    name: ClassVar[str]
    folder: Path
    write_lock: CheckedLock
    """Held by a write, and by a flush of one family after the other."""
    filters_expired: ClassVar[bool]
    """Compactions drop units below ``expire_below``; otherwise expired units are deleted."""

    def write(self, batch: EngineBatch) -> None:
        """Apply ``batch``, all of it or nothing; readers see it when this returns."""

    def append_job(self, batch: UnitBatch) -> "AppendJob | None":
        """Return the fast path of a batch, which takes the queues that simply go on.

        ``None``: this engine has none, or the batch has no such queue, or something impossible.
        """

    def append(
        self, job: "AppendJob", put: tuple[bytes, bytes], others: EngineBatch | None = None
    ) -> None:
        """Apply ``job``, ``put`` in family ``offset``, and ``others``, as one ``write``.

        Raises:
            UnsupportedFormatError: this engine makes no jobs.
        """

    def get(self, family: str, key: bytes) -> bytes | None:
        """Return the value of ``key``, ``None`` if there is none."""

    def multi_get(self, family: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value, or ``None``, of each key, in the order of ``keys``."""

    def search(
        self, prefix: bytes, ends: tuple[int, int], timestamp: int, log: tuple[int, int],
        *, upper: bool,
    ) -> int | None:  # fmt: skip
        """Return what ``search_offset`` does, in one call; ``None``: this engine cannot.

        A unit counts as stored at -1 if it is missing, or its record is outside ``log``.
        """

    def scan_units(self, prefix: bytes, queue_offset: int, count: int) -> PackedUnits:
        """Return at most ``count`` (one or more) consecutive units of a queue from an offset on.

        ``LIMIT``: all of them; ``HOLE``: a unit is missing and another one follows; ``END``: no
        further unit of the queue exists.

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

        Fewer than ``limit``: there are no more. Nothing is held open behind the call; go on
        from the last key + ``b"\\0"``.
        """

    def flush(self) -> None:
        """Make all writes durable, so that at no moment an offset entry is without its units."""

    def compact(self, family: str) -> None:
        """Compact a whole family, its last level too."""

    def cancel_compaction(self) -> bool:
        """Make a running ``compact`` return soon, its work undone at most in part.

        False: this engine cannot cancel; the compaction continues to its end.
        """

    def expire_below(self, min_phy_offset: int) -> None:
        """Have compactions drop units of records below; never lowered while the database is open.

        Nothing happens without ``filters_expired``. Units say where their records lie in their
        first eight bytes.
        """

    @property
    def dropped_units(self) -> int:
        """Return how many units compactions have dropped since the database was opened."""

    def table_writer(self, family: str, path: Path) -> TableWriter:
        """Begin a table file at ``path``, with the options of ``family``."""

    def ingest(self, family: str, paths: Sequence[Path]) -> None:
        """Take table files in, all or none; durable when it returns, and the files are moved."""

    def snapshot(self) -> AbstractContextManager[EngineSnapshot]:
        """Hold the database as of now while the block runs; ``close`` waits for its end.

        Raises:
            UnsupportedFormatError: this engine has none.
        """

    def property_value(self, family: str, name: str) -> str | None:
        """Return one of RocksDB's properties, such as ``rocksdb.estimate-num-keys``."""

    def approximate_size(self, family: str, start: bytes, end: bytes) -> int | None:
        """Return about how many bytes of table files a range takes; ``None``: not reported."""

    def live_files(self) -> list[LiveFile]:
        """Return the table files of all families."""

    def versions(self) -> dict[str, str]:
        """Return what is at work, label → version."""

    def close(self, *, flush: bool = True) -> None:
        """Wait for running calls, refuse new ones, flush if asked for, release everything.

        Everything is released also if the flush fails. A second call does nothing. A call of the
        same thread in whose middle it comes (a signal's handler closes) answers, or raises
        ``StoreClosedError``.

        Raises:
            NestedCallError: this thread is in the middle of a write; nothing was done.
        """
