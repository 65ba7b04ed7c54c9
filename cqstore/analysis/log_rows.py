"""Records of one log file as columns: numpy gathers their fixed fields from the file."""

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cqstore.analysis.columns import ARROW, TableColumn, time_array
from cqstore.analysis.filters import RowFilter
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.gather import gather
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Host, MessageProperty, SysFlag
from cqstore.store.record.properties import decode_properties
from cqstore.store.record.record_layout import (
    HEAD,
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    STORED,
    TAIL,
    body_position,
    born_host_size,
    store_host_size,
)
from cqstore.store.record.scan import ScannedRecord

Array = NDArray[Any]
_HOST_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


def _rest(sys_flag: int) -> np.dtype[Any]:
    """Return the dtype of the fields between head and body, for these sizes of the hosts."""
    born, stored = f"V{born_host_size(sys_flag)}", f"V{store_host_size(sys_flag)}"
    return np.dtype([
        ("born_host", born), *STORED.dtype.descr, ("store_host", stored), *TAIL.dtype.descr,
    ])  # fmt: skip


class LogRows:
    """The ``records`` of one file that match ``rows``; ``count`` of them."""

    def __init__(self, log: CommitLog, records: Sequence[ScannedRecord], rows: RowFilter) -> None:
        phy = np.fromiter((record[0] for record in records), np.int64, len(records))
        keep = np.ones(len(records), np.bool_)
        if rows.topics is not None or rows.prefixes:
            named = {record.topic for record in records}  # a file's at most, and only for now
            taken = {topic for topic in named if rows.accepts_topic(topic)}
            keep = np.fromiter(
                (record.topic in taken for record in records), np.bool_, len(records)
            )
        self._file = log.files.file_to_read(int(phy[0]))
        self._start = self._file.file_from_offset
        self._records: Sequence[ScannedRecord] = records
        self._take(phy, np.flatnonzero(keep))
        by_number = rows.mask({
            "queue_id": self._head["queue_id"], "queue_offset": self._head["queue_offset"],
            "phy_offset": self._phy, "size": self._head["total_size"],
            "store_timestamp": self._tail["store_timestamp"],
        })  # fmt: skip
        if by_number is not None and not by_number.all():
            self._take(self._phy, np.flatnonzero(by_number))
        self.count = len(self._phy)

    def _take(self, phy: NDArray[np.int64], keep: NDArray[np.intp]) -> None:
        """Keep these rows, and gather their fixed fields."""
        if len(keep) < len(self._records):
            self._records = [self._records[row] for row in keep.tolist()]
        self._phy = phy[keep]
        positions = self._phy - self._start
        self._head = gather(self._file, HEAD.dtype, positions)
        self._tail = self._gather_tails(positions + HEAD.size)

    def _gather_tails(self, positions: NDArray[np.int64]) -> dict[str, Array]:
        """Return store time, hosts (as bytes) and the fields after them, as columns."""
        names = ("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_size")
        columns: dict[str, Array] = {name: np.zeros(len(positions), np.int64) for name in names}
        hosts = {name: np.empty(len(positions), object) for name in ("born_host", "store_host")}
        bits = self._head["sys_flag"] & _HOST_BITS
        for kind in sorted({*bits.tolist()}):
            rows = np.flatnonzero(bits == kind)
            found = gather(self._file, _rest(kind), positions[rows])
            for name in names:
                columns[name][rows] = found[name]
            for name, column in hosts.items():
                column[rows] = found[name].tolist()
        return columns | hosts

    def batch(self, columns: Sequence[TableColumn]) -> pa.RecordBatch:
        """Return the rows as ``columns``.

        Raises:
            CorruptionError: a body cannot be decompressed.
        """
        arrays = [self._array(column) for column in columns]
        return pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])

    def _array(self, column: TableColumn) -> pa.Array:
        """Return a column of the rows as an Arrow array of the column's type."""
        kind = ARROW[column.type]
        if (make := _MADE.get(column.name)) is not None:
            return make(self)
        name = _STORED_AS.get(column.name, column.name)
        if name in _PROPERTY:
            return pa.array([one.get(_PROPERTY[name]) for one in self._properties], kind)
        source = self._tail[name] if name in self._tail else self._head[name]
        return pa.array(source.astype(kind.to_pandas_dtype()), kind)

    @cached_property
    def _properties(self) -> list[dict[str, str]]:
        return [decode_properties(record.properties) for record in self._records]

    def _property_map(self) -> pa.Array:
        ends = np.cumsum([0, *map(len, self._properties)], dtype=np.int32)
        names = [name for one in self._properties for name in one]
        values = [value for one in self._properties for value in one.values()]
        text = ARROW["string"]
        return pa.MapArray.from_arrays(ends, pa.array(names, text), pa.array(values, text))

    def _bodies(self) -> pa.Array:
        return pa.array([self._body(row) for row in range(self.count)], ARROW["binary"])

    def _body(self, row: int) -> bytes:
        """Return the decompressed body of a record."""
        phy, size = int(self._phy[row]), int(self._head["total_size"][row])
        start = phy - self._start
        flag = int(self._head["sys_flag"][row])
        if flag & SysFlag.COMPRESSED:
            return StoredMessage(self._file.read(start, size), phy).body
        at = start + body_position(flag)
        return self._file.read(at, int(self._tail["body_size"][row]))

    def _topics(self) -> pa.Array:
        return pa.array([record.topic for record in self._records], ARROW["string"])

    def _hosts(self, name: str) -> pa.Array:
        return pa.array(list(map(_host_text, self._tail[name])), ARROW["string"])


@lru_cache(maxsize=4096)
def _host_text(wire: bytes) -> str:
    assert len(wire) in {HOST_V4_SIZE, HOST_V6_SIZE}
    return str(Host(wire))


_PROPERTY = {
    "tags": MessageProperty.TAGS,
    "keys": MessageProperty.KEYS,
    "uniq_key": MessageProperty.UNIQ_KEY,
}
_STORED_AS = {"size": "total_size", "body_length": "body_size"}
_MADE: dict[str, Callable[[LogRows], pa.Array]] = {
    "topic": LogRows._topics,  # noqa: SLF001
    "store_time": lambda rows: time_array(rows._tail["store_timestamp"]),  # noqa: SLF001
    "born_time": lambda rows: time_array(rows._head["born_timestamp"].astype(np.int64)),  # noqa: SLF001
    "born_host": lambda rows: rows._hosts("born_host"),  # noqa: SLF001
    "store_host": lambda rows: rows._hosts("store_host"),  # noqa: SLF001
    "properties": LogRows._property_map,  # noqa: SLF001
    "body": lambda rows: rows._bodies(),  # noqa: SLF001 - of a class below this one too
}
