"""``tools.bench.archiving [MESSAGES [TOPICS]]``: an archive on Spark, an export in Python.

Both write Parquet of the same store. Seconds are those of the process, with the start of Spark, and
without it those of a run in a session that was there.
"""

import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.analysis.archive.archive_run import plan_run, run
from cqstore.analysis.archive.parquet_archive import ParquetArchive
from cqstore.analysis.archive.spark_job import SETTINGS, on_spark
from cqstore.analysis.options import SourceOptions
from cqstore.spark.spark_session import spark_session
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_messages import put_messages

_REPEATS = 60  # of a text of 16 bytes or so
_LIST = 1000
_LOG_FILE = 64 << 20
_COMMAND = str(Path(sys.executable).parent / "cqstore")


def main(words: list[str]) -> None:
    """Make a store and write it out in both ways."""
    messages, topics = (int(word) for word in [*words, "500000", "50"][:2])
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        root = folder / "store"
        config = StoreConfig(mapped_file_size_commit_log=_LOG_FILE)
        with MessageStore.open(root, config) as store:
            put_messages(store, messages, topics, 4, repeats=_REPEATS, limit=_LIST)
            log_bytes = store.max_phy_offset()
        figures = {
            "cqstore export": _process("export", root, "--to", folder / "export.parquet"),
            "cqstore archive, local[2]": _process(
                "archive", root, "--to", folder / "one", "--master", "local[2]"
            ),
            "cqstore archive, nothing new": _process("archive", root, "--to", folder / "one"),
        }
        with spark_session("bench", "local[2]", settings=SETTINGS) as spark:
            for name in ("a session that was there, first", "the same, warm"):
                began = time.monotonic()
                there = ParquetArchive(folder / name)
                run(
                    there,
                    plan_run(there, {"s": SourceOptions(path=root)}),
                    partial(on_spark, spark),
                )
                figures[name] = time.monotonic() - began
        sizes = {path.name: _bytes(path) for path in (folder / "one", folder / "export.parquet")}
    table = Table("messages", "log, MB", "way", "s", "messages a second")
    for way, seconds in figures.items():
        table.add_row(
            f"{messages:,}", f"{log_bytes / 1e6:,.0f}", way, f"{seconds:.1f}",
            f"{messages / seconds:,.0f}",
        )  # fmt: skip
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(table)
    console.print(sizes)


def _process(*words: object) -> float:
    began = time.monotonic()
    subprocess.run([_COMMAND, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files)


if __name__ == "__main__":
    main(sys.argv[1:])
