"""Units as columns of either table, collected until a batch is full."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cqstore.analysis.columns import ARROW, BATCH_ROWS, TableColumn
from cqstore.analysis.filters import RowFilter
from cqstore.analysis.unit_rows import UnitPiece, UnitRows, pieces_of
from cqstore.cli.message_files.message_arrow import schema
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore

IN_UNITS = {
    "topic": "topic", "queueId": "queue_id", "queueOffset": "queue_offset", "phy": "phy_offset",
    "storeTimestamp": "store_timestamp",
}  # fmt: skip
"""Columns of messages that units have too, with their names there."""
TIMED = frozenset({"store_timestamp", "store_time"})
"""Columns of units that may need a read of the log."""


def unit_schema(columns: Sequence[TableColumn]) -> pa.Schema:
    """Return the schema of units."""
    return pa.schema([(column.name, ARROW[column.type]) for column in columns])


class UnitTableColumns:
    """Collects units, and returns ``columns`` of those that match ``rows``."""

    def __init__(self, columns: Sequence[TableColumn], rows: RowFilter) -> None:
        self.is_timed = bool(TIMED & {*(column.name for column in columns), *rows.numbers})
        self._columns, self._filter = columns, rows
        self._pieces: list[UnitPiece] = []
        self._count = 0

    def batches(
        self, store: MessageStore, spans: Iterable[tuple[QueueKey, int, int]]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the units of these queues from their first to their end offset, in full batches."""
        for key, first, end in spans:
            for piece in pieces_of(store, key, first, end, timed=self.is_timed):
                self.take(piece)
                if self.is_full:
                    yield from self.rest()
        yield from self.rest()

    def take(self, piece: UnitPiece) -> None:
        """Take units of one queue."""
        self._pieces.append(piece)
        self._count += len(piece.offsets)

    @property
    def is_full(self) -> bool:
        """Return whether a batch is complete."""
        return self._count >= BATCH_ROWS

    def rest(self) -> list[pa.RecordBatch]:
        """Return the remaining units as a batch; empty if there are none."""
        pieces, self._pieces, self._count = self._pieces, [], 0
        if not pieces:
            return []
        found = UnitRows(pieces, self._filter)
        return [found.batch(self._columns)] if found.count else []


class PlaceColumns:
    """Collects units, and returns the columns of messages that units have: positions and times."""

    def __init__(self, names: Sequence[str], known: Sequence[TableColumn], rows: RowFilter) -> None:
        self.schema = schema(names)
        by_name = {column.name: column for column in known}
        self._units = UnitTableColumns([by_name[IN_UNITS[name]] for name in names], rows)
        self.is_timed = self._units.is_timed
        self.take = self._units.take

    @property
    def is_full(self) -> bool:
        """Return whether a batch is complete."""
        return self._units.is_full

    def rest(self) -> list[pa.RecordBatch]:
        """Return the remaining units as a batch, see ``UnitTableColumns``."""
        return [
            pa.RecordBatch.from_arrays(
                [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, self.schema, strict=True)
                ],
                schema=self.schema,
            )
            for batch in self._units.rest()
        ]


def rows_of(piece: UnitPiece, keep: NDArray[np.bool_]) -> UnitPiece:
    """Return the units of ``piece`` selected by ``keep``."""
    if keep.all():
        return piece
    no_code, batch_num, stamps = piece.no_code, piece.batch_num, piece.stamps
    return UnitPiece(
        piece.key,
        piece.offsets[keep],
        piece.units[keep],
        None if no_code is None else no_code[keep],
        None if batch_num is None else batch_num[keep],
        None if stamps is None else stamps[keep],
    )
