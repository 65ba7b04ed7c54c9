"""The Spark job: reads logs, groups rows by topic and day, and writes files.

Rows are shuffled before they are written: without that, each task would write a small file for
every topic and day of its part of a log. Spark splits large groups and joins small ones.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from cqstore.analysis.archive.archive_rows import ROWS_DDL, read_rows
from cqstore.analysis.archive.file_writer import WrittenFile, write_files
from cqstore.analysis.archive.log_ranges import LogRange
from cqstore.analysis.failures import spark_failures
from cqstore.analysis.log_table import LogPart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Job = Callable[[Sequence[LogRange], Path], list[WrittenFile]]
"""Writes the rows of logs to files in a folder, and returns the files."""
SETTINGS = {"spark.sql.adaptive.advisoryPartitionSizeInBytes": str(128 << 20)}
"""Settings of the session: bytes per writing task."""
ORDER = ("topic", "day", "source", "phy", "queueOffset")
_VIEW = "cqstore_archive_rows"
_REBALANCED = f"SELECT /*+ REBALANCE(topic, day) */ * FROM {_VIEW}"
Task = tuple[LogRange, int, LogPart]


def tasks_of(ranges: Sequence[LogRange]) -> list[Task]:
    """Return each part with the range and the number of its source."""
    return [(span, number, part) for number, span in enumerate(ranges) for part in span.parts]


def on_spark(
    spark: "SparkSession", ranges: Sequence[LogRange], folder: Path
) -> list[WrittenFile]:  # fmt: skip
    """Run the job; every returned file is complete and durable.

    Raises:
        CorruptionError: a log is damaged, and the record after the damage cannot be found.
        StoreError: something cannot be read or written, or Spark fails.
    """
    tasks = tasks_of(ranges)
    names = [span.source for span in ranges]
    with spark_failures():
        numbers = spark.range(0, len(tasks), 1, len(tasks))
        rows = numbers.mapInArrow(partial(_read, tasks), ROWS_DDL)
        rows.createOrReplaceTempView(_VIEW)
        try:
            ordered = spark.sql(_REBALANCED).sortWithinPartitions(*ORDER)
            found = ordered.mapInArrow(partial(_write, str(folder), names), "file string").collect()
        finally:
            spark.catalog.dropTempView(_VIEW)
    return [WrittenFile.of_text(row.file) for row in found]


def _read(tasks: Sequence[Task], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from read_rows(*tasks[number])


def _write(
    folder: str, names: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for file in write_files(Path(folder), names, batches):
        yield pa.RecordBatch.from_pydict({"file": [file.to_text()]})
