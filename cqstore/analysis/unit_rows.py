"""Units of queues as columns: numpy reads packed blocks, without a Python object per unit."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cqstore.analysis.columns import ARROW, BATCH_ROWS, NULL_TIMESTAMP, TableColumn, time_array
from cqstore.analysis.filters import RowFilter
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import EXT_ADDRESS_MAX, PACKED_PREFIX, UNIT_COLUMNS, QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class UnitPiece(NamedTuple):
    """Units of one queue."""

    key: QueueKey
    offsets: NDArray[np.int64]
    units: NDArray[Any]
    """Fields ``phy_offset``, ``size``, ``tags_code``."""
    no_code: NDArray[np.bool_] | None
    """Mask of units whose tags code address cannot be resolved; ``None`` if there are none."""
    batch_num: NDArray[np.int32] | None
    """Messages per unit; ``None`` if all are 1."""
    stamps: NDArray[np.int64] | None
    """Store times in ms, ``NULL_TIMESTAMP`` without a record; ``None`` if not requested."""


def pieces_of(
    store: MessageStore, key: QueueKey, first: int, end: int, *, timed: bool
) -> Iterator[UnitPiece]:
    """Yield the units [``first``, ``end``) of a queue, at most one batch at a time.

    Holes are skipped.
    """
    queue = components_of(store).queues.queue(*key)
    if components_of(store).queues.queue_type(key.topic) is QueueType.BATCH:
        log = components_of(store).log
        for at in range(first, end, BATCH_ROWS):
            yield from _batch_pieces(queue, log, key, at, min(at + BATCH_ROWS, end), timed=timed)
        return
    for block in queue.blocks(first, end, BATCH_ROWS):
        units, at = block.columns(), block.queue_offset
        offsets = np.arange(at, at + block.count, dtype=np.int64)
        stamps = _stamps(components_of(store).log, units) if timed else None
        units, missing = _resolved(queue, units)
        yield UnitPiece(key, offsets, units, missing, None, stamps)


def _batch_pieces(
    queue: ConsumeQueue, log: CommitLog, key: QueueKey, first: int, end: int, *, timed: bool
) -> Iterator[UnitPiece]:
    """Yield a batch queue's units that begin in [``first``, ``end``), a unit at a time."""
    found = []
    for unit in queue.iterate(first):
        if unit.queue_offset >= end:
            break
        if unit.queue_offset >= first:
            found.append(unit)
    if not found:
        return
    units = np.array(
        [(unit.phy_offset, unit.size, unit.tags_code or 0) for unit in found],
        UNIT_COLUMNS[PACKED_PREFIX],
    )
    yield UnitPiece(
        key,
        np.array([unit.queue_offset for unit in found], np.int64),
        units,
        np.array([unit.tags_code is None for unit in found]),
        np.array([unit.batch_num for unit in found], np.int32),
        _stamps(log, units) if timed else None,
    )


def _resolved(
    queue: ConsumeQueue, units: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """Return ``units`` with resolved extension addresses, and a mask of those without a code."""
    rows = np.flatnonzero(units["tags_code"] <= EXT_ADDRESS_MAX)
    if not len(rows):
        return units, None
    units, missing = units.copy(), np.zeros(len(units), np.bool_)
    for row in rows.tolist():
        code = queue.resolve_tags_code(int(units["tags_code"][row]))
        missing[row] = code is None
        units["tags_code"][row] = code or 0
    return units, missing


def _stamps(log: CommitLog, units: NDArray[Any]) -> NDArray[np.int64]:
    """Return the store times of the units: their own, or else those of their records."""
    phy = units["phy_offset"].astype(np.int64)
    if "store_timestamp" not in (units.dtype.names or ()):
        return log.known_timestamps(phy, units["size"].astype(np.int64))
    there = (phy >= log.min_phy_offset()) & (phy < log.max_phy_offset())
    return np.where(there, units["store_timestamp"], NULL_TIMESTAMP).astype(np.int64)


class UnitRows:
    """The units of ``pieces`` that match ``rows``; ``count`` of them."""

    def __init__(self, pieces: Sequence[UnitPiece], rows: RowFilter) -> None:
        lengths = np.array([len(piece.offsets) for piece in pieces])
        index: dict[str, int] = {}
        topic = [index.setdefault(piece.key.topic, len(index)) for piece in pieces]
        self._names = list(index)
        one = [np.ones(length, np.int32) for length in lengths]
        none = [np.zeros(length, np.bool_) for length in lengths]
        self._columns: dict[str, NDArray[Any]] = {
            "topic": np.repeat(np.array(topic, np.int32), lengths),
            "queue_id": np.repeat(np.array([p.key.queue_id for p in pieces], np.int32), lengths),
            "queue_offset": np.concatenate([piece.offsets for piece in pieces]),
            "batch_num": _joined([piece.batch_num for piece in pieces], one),
            "no_code": _joined([piece.no_code for piece in pieces], none),
        }
        for name in ("phy_offset", "size", "tags_code"):
            self._columns[name] = np.concatenate([piece.units[name] for piece in pieces])
        stamps = [piece.stamps for piece in pieces if piece.stamps is not None]
        if len(stamps) == len(pieces):
            self._columns["store_timestamp"] = np.concatenate(stamps)
        keep = rows.mask(self._columns)
        if keep is not None and not keep.all():
            self._columns = {name: column[keep] for name, column in self._columns.items()}
        self.count = len(self._columns["topic"])

    def batch(self, columns: Sequence[TableColumn]) -> pa.RecordBatch:
        """Return the rows as ``columns``."""
        arrays = [self._array(column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])

    def _array(self, column: TableColumn) -> pa.Array:
        """Return a column of the rows as an Arrow array of the column's type."""
        kind = ARROW[column.type]
        if column.name == "topic":
            names = [name.encode("utf-8", "replace").decode() for name in self._names]
            return pa.array(names, kind).take(pa.array(self._columns["topic"]))
        if column.name in {"store_timestamp", "store_time"}:
            stamps = self._columns["store_timestamp"]
            if column.name == "store_time":
                return time_array(stamps)  # a null is outside of its years
            return pa.array(stamps, kind, mask=stamps == NULL_TIMESTAMP)
        source = self._columns[column.name].astype(kind.to_pandas_dtype())
        no_code = self._columns["no_code"] if column.name == "tags_code" else None
        return pa.array(source, kind, mask=no_code)


def _joined(given: Sequence[NDArray[Any] | None], else_: Sequence[NDArray[Any]]) -> NDArray[Any]:
    pairs = zip(given, else_, strict=True)
    return np.concatenate([other if one is None else one for one, other in pairs])
