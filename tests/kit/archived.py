"""Archives made in one process: what stands in for Spark orders the rows itself, in memory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from cqstore.analysis.archive.archive_rows import ROWS, read_rows
from cqstore.analysis.archive.archive_run import ArchivedRun, plan_run, run
from cqstore.analysis.archive.file_writer import WrittenFile, write_files
from cqstore.analysis.archive.log_ranges import LogRange
from cqstore.analysis.archive.spark_job import ORDER, tasks_of
from cqstore.analysis.commands.archive import ArchiveFormat, open_archive
from cqstore.analysis.options import SourceOptions

Row = dict[str, Any]


def in_process(ranges: Sequence[LogRange], folder: Path) -> list[WrittenFile]:
    """Do the job as Spark does it, with the same reading and the same writing."""
    read = [batch for task in tasks_of(ranges) for batch in read_rows(*task)]
    table = pa.Table.from_batches(read, schema=ROWS)
    ordered = table.sort_by([(name, "ascending") for name in ORDER])
    names = [span.source for span in ranges]
    return list(write_files(folder, names, ordered.to_batches(max_chunksize=100)))


def archive(folder: Path, form: str = "parquet", /, **roots: Path) -> ArchivedRun:
    """Archive stores, each under the name it is given by."""
    there = open_archive(ArchiveFormat(form), folder)
    sources = {name: SourceOptions(path=root) for name, root in roots.items()}
    return run(there, plan_run(there, sources), in_process)


def archived(folder: Path) -> list[Row]:
    """Return what a plain reader of the folder sees, file by file; the day is that of the folder.

    Every file is one that a manifest names, and of the size that it says.
    """
    rows: list[Row] = []
    for batch in sorted(folder.glob("batch=*")):
        files = json.loads((batch / "_manifest.json").read_text(encoding="utf-8"))["files"]
        named = {batch / each["path"]: each for each in files}
        assert set(named) == set(batch.rglob("*.parquet"))
        for path, each in sorted(named.items()):
            assert path.stat().st_size == each["size"]
            found = pq.ParquetFile(path).read().to_pylist(maps_as_pydicts="strict")
            assert len(found) == each["messages"]
            assert {row["topic"] for row in found} == {each["topic"]}
            rows += [row | {"day": path.parent.name.removeprefix("day=")} for row in found]
    return rows
