"""Scans by Arrow beside pyarrow's own read of a Parquet file that has the same rows and columns."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import cqstore
from tools.bench.workloads import BACKENDS, Reached, fill, folder

PLACES = ("topic", "queueId", "queueOffset", "phy")
HEADS = ("topic", "queueId", "queueOffset", "storeTimestamp", "msgId", "flag")


def scanned(backend: str, count: int, body: int, columns: Sequence[str] | None) -> Reached:
    """Every message as record batches, through the C stream; nothing is kept."""
    with folder() as root:
        fill(root / "store", backend, 8, count, body)
        found = cqstore.scan(root / "store", columns=columns)
        with pq.ParquetWriter(root / "rows", found.schema, compression="zstd") as writer:
            for batch in found.to_batches():
                writer.write_batch(batch)
        seconds = _seconds(lambda: pa.RecordBatchReader.from_stream(found), count)
        raw = _seconds(partial(_parquet, root / "rows"), count)
    return Reached(count / seconds, count / raw, "rows/s")


def _parquet(path: Path) -> pa.RecordBatchReader:
    file = pq.ParquetFile(path)
    return pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches())


def _seconds(opened: Callable[[], pa.RecordBatchReader], count: int) -> float:
    started = time.perf_counter()
    rows = sum(batch.num_rows for batch in opened())
    seconds = time.perf_counter() - started
    if rows != count:
        raise RuntimeError(f"{rows} rows, not {count}")
    return seconds


ARROW_SCANS: dict[str, Callable[[], Reached]] = {
    f"arrow scan {backend} {words}, 128 B": partial(scanned, backend, 400_000, 128, columns)
    for backend in BACKENDS
    for words, columns in (("all columns", None), ("heads", HEADS), ("places", PLACES))
}
