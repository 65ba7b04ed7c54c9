"""Writes rows, ordered by topic and day, to Parquet files of one topic and day each."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cqstore.analysis.archive.archive_rows import DAMAGE, ROWS
from cqstore.store.errors import os_errors

FILE_BYTES = 256 << 20
"""Uncompressed bytes of rows after which the next file is begun."""
GROUP_BYTES = 16 << 20
GROUP_ROWS = 16_384
"""Approximate limits of a row group: a reader of the file holds one in memory."""
_TIMES = ("storeTimestamp", "bornTimestamp")
_TIME = pa.timestamp("us", tz="UTC")
_MAX_MS = (1 << 63) // 1000 - 1
_NULLABLE = {*_TIMES, "tags", "keys", "uniqKey"}
_NO_STATISTICS = {"body", "properties"}


def _file_schema() -> pa.Schema:
    kinds = {name: ROWS.field(name).type for name in ROWS.names if name != "day"}
    kinds |= {"source": pa.string(), **dict.fromkeys(_TIMES, _TIME)}
    return pa.schema([
        pa.field(name, kind, nullable=name in _NULLABLE) for name, kind in kinds.items()
    ])  # fmt: skip


FILES = _file_schema()
"""Schema of a file. A time that microseconds cannot represent is null."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A complete file on disk, or, without a name, the damage that was skipped."""

    name: str
    topic: str
    day: str
    size: int
    messages: dict[str, int] = field(default_factory=dict)
    """By source."""
    faults: list[str] = field(default_factory=list)

    def to_text(self) -> str:
        """Return the fields as JSON, for the process that gathers the files of all tasks."""
        return json.dumps(asdict(self))

    @classmethod
    def of_text(cls, text: str) -> "WrittenFile":
        """Return the file described by ``text`` of ``to_text``."""
        return cls(**json.loads(text))


def write_files(
    folder: Path, sources: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[WrittenFile]:
    """Write rows that are ordered by topic and day to new files in ``folder``.

    Each file is durable when it is yielded. Files of an earlier attempt of the same task remain: no
    result refers to them.

    Raises:
        StoreIOError: a file cannot be written.
    """
    current: _OpenFile | None = None
    faults: list[str] = []
    try:
        for batch in batches:
            for topic, day, rows in _runs(batch):
                if topic == DAMAGE:
                    faults += [body.decode() for body in rows["body"].to_pylist()]
                    continue
                if current is not None and not current.takes(topic, day):
                    yield current.finish()
                    current = None
                if current is None:
                    current = _OpenFile(folder, topic, day, sources)
                current.write(rows)
        if current is not None:
            done, current = current.finish(), None
            yield done
    finally:
        if current is not None:
            current.give_up()
    if faults:
        yield WrittenFile("", DAMAGE, "", 0, faults=faults)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """Yield each run of adjacent rows with the same topic and day."""
    if not batch.num_rows:
        return
    keys = pc.binary_join_element_wise(batch["topic"], batch["day"], "\0")
    runs = pc.run_end_encode(keys)
    start = 0
    for key, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        topic, _, day = key.rpartition("\0")
        yield topic, day, batch.slice(start, end - start)
        start = end


class _OpenFile:
    """A Parquet file of one topic and day that is being written."""

    def __init__(self, folder: Path, topic: str, day: str, sources: Sequence[str]) -> None:
        self._topic, self._day = topic, day
        self._sources = pa.array(sources, pa.string())
        self._path = folder / f"{uuid4().hex}.parquet"
        self._counts: Counter[str] = Counter()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = self._waiting_rows = self._bytes = 0
        with os_errors("write a file of the archive", self._path):
            self._file = self._path.open("xb")
            self._writer = pq.ParquetWriter(
                self._file, FILES, compression="zstd", write_page_checksum=True,
                write_statistics=[each for each in FILES.names if each not in _NO_STATISTICS],
            )  # fmt: skip

    def takes(self, topic: str, day: str) -> bool:
        """Return whether rows of this topic and day belong to this file."""
        return (topic, day) == (self._topic, self._day) and self._bytes < FILE_BYTES

    def write(self, rows: pa.RecordBatch) -> None:
        """Take rows; write a row group when there are enough."""
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._waiting_bytes += rows.nbytes
        if self._waiting_rows >= GROUP_ROWS or self._waiting_bytes >= GROUP_BYTES:
            self._flush()

    def finish(self) -> WrittenFile:
        """Write the remaining rows; return the file, which is durable."""
        self._flush()
        with os_errors("write a file of the archive", self._path):
            self._writer.close()
            self._file.flush()
            os.fsync(self._file.fileno())
            size = self._file.tell()
            self._file.close()
        return WrittenFile(self._path.name, self._topic, self._day, size, dict(self._counts))

    def give_up(self) -> None:
        """Close the file and remove what was written."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def _flush(self) -> None:
        """Write the waiting rows."""
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        columns: dict[str, Any] = {name: table[name] for name in FILES.names}
        columns["source"] = self._sources.take(table["source"])
        numbers, counts = np.unique(table["source"].to_numpy(), return_counts=True)
        names = self._sources.to_pylist()
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._counts[names[number]] += count
        for name in _TIMES:
            columns[name] = _times(table[name])
        arrays = [columns[name].cast(FILES.field(name).type) for name in FILES.names]
        with os_errors("write a file of the archive", self._path):
            self._writer.write_table(pa.Table.from_arrays(arrays, schema=FILES))
        self._bytes += self._waiting_bytes
        self._waiting, self._waiting_rows, self._waiting_bytes = [], 0, 0


def _times(stamps: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of ms as timestamps; null where microseconds do not hold one."""
    fits = pc.and_(pc.less_equal(stamps, _MAX_MS), pc.greater_equal(stamps, -_MAX_MS))
    within = pc.if_else(fits, stamps, pa.scalar(None, pa.int64()))
    return pc.multiply(within, 1000).cast(_TIME)
