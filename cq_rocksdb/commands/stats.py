"""``cqstore rocksdb stats``."""

from collections.abc import Iterator
from heapq import nlargest
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.options import ConfigFile, Dir, Format, note, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import counted, progress
from cqstore.cli.table import Row
from cqstore.cq_rocksdb.commands.opened_queues import rocksdb_queues
from cqstore.cq_rocksdb.engine.database_stats import CACHE_USAGE, COUNTERS, PROPERTIES
from cqstore.cq_rocksdb.engine.logged_counters import logged_counters
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.cq_rocksdb.keys import topic_range
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.service.opening.components import components_of

_PROPERTIES = {
    "keys (estimate)": PROPERTIES["keys_estimate"],
    "live data, bytes (estimate)": PROPERTIES["live_data_bytes_estimate"],
    "tables, bytes": PROPERTIES["table_bytes"],
    "pending compaction, bytes": PROPERTIES["pending_compaction_bytes_estimate"],
    "memtables, bytes": PROPERTIES["memtable_bytes"],
    "background errors": PROPERTIES["background_errors"],
}
_COUNTERS = {
    "block cache hits": COUNTERS["block_cache_hits"],
    "block cache misses": COUNTERS["block_cache_misses"],
    "units dropped by the filter": COUNTERS["units_dropped_by_the_filter"],
    "bytes written by flushes": COUNTERS["flush_written_bytes"],
    "bytes written by compactions": COUNTERS["compaction_written_bytes"],
    "bytes written to the write-ahead log": COUNTERS["wal_written_bytes"],
    "bytes in write batches, including keys": COUNTERS["handed_bytes"],
}


def stats(
    root: Dir,
    topics: Annotated[
        int,
        typer.Option(metavar="N", min=0, help="Number of largest topics to list (native engine)."),
    ] = 0,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show sizes, levels, tombstones and pending compaction of RocksDB. Changes nothing.

    The counters (cache hits, bytes written) come from RocksDB's log file, with the time of logging.

    Examples:
        cqstore rocksdb stats DIR
        cqstore rocksdb stats DIR --topics 20 --output json
    """
    bounded = BoundedAnswer()
    with progress("reading"), open_store(root, config, None, None) as store:
        queues = rocksdb_queues(store)
        rows = [
            *_facts(queues),
            *_counters(log_folder(components_of(store).paths)),
            *_levels(queues.engine),
            *_topics(queues, topics, bounded),
        ]
    output(kind).rows(rows, bounded.has_more)


def _facts(queues: RocksDBConsumeQueueStore) -> Iterator[Row]:
    """Yield the rows of the engine and of RocksDB's properties."""
    engine = queues.engine
    yield _row("database", "engine", engine.name)
    yield from [_row("database", *fact) for fact in engine.versions().items()]
    yield _row("database", "on disk, bytes", queues.total_size_bytes())
    usage = engine.property_value(Family.DEFAULT, CACHE_USAGE)
    yield _row("database", "block cache in use, bytes", int(usage or 0))
    for family in Family:
        for label, name in _PROPERTIES.items():
            value = engine.property_value(family, name)
            yield _row(family.value, label, int(value) if value is not None else None)


def _counters(log_folder: Path) -> Iterator[Row]:
    logged = logged_counters(log_folder)
    if logged is None:
        return
    part = f"since the database was opened, logged at {logged.time}"
    for label, name in _COUNTERS.items():
        yield _row(part, label, logged.counts.get(name))


def _levels(engine: RocksEngine) -> Iterator[Row]:
    """Yield the rows of what each level holds."""
    levels: dict[tuple[str, int], list[int]] = {}
    for file in engine.live_files():
        family = file.family or "both"
        sums = levels.setdefault((family, file.level), [0, 0, 0, 0])
        for at, value in enumerate((1, file.size_bytes, file.entries, file.deletions)):
            sums[at] += value
    labels = ("tables", "bytes", "entries", "tombstones")
    for (family, level), sums in sorted(levels.items()):
        for label, value in zip(labels, sums, strict=True):
            yield _row(f"{family}, level {level}", label, value)


def _topics(queues: RocksDBConsumeQueueStore, count: int, bounded: BoundedAnswer) -> Iterator[Row]:
    found = nlargest(count + 1, _sizes(queues)) if count else []
    for size, topic in bounded.limited(found, count, "topics", "--topics"):
        yield _row(f"topic {topic}", "bytes in tables (estimate)", size)


def _sizes(queues: RocksDBConsumeQueueStore) -> Iterator[tuple[int, str]]:
    for topic in counted(queues.topics(), "reading topic sizes", None, "topics"):
        size = queues.engine.approximate_size(Family.DEFAULT, *topic_range(topic))
        if size is None:
            note("this engine does not report topic sizes")
            return
        yield size, topic


def _row(part: str, fact: str, value: object) -> Row:
    return {"part": part, "fact": fact, "value": value}
