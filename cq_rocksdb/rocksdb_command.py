"""The verbs of ``cqstore rocksdb``."""

from collections.abc import Iterator
from heapq import nlargest
from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, check_is_there, note, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import counted, progress
from cqstore.cli.table import Row
from cqstore.cq_rocksdb.engine.database_stats import CACHE_USAGE, COUNTERS, PROPERTIES
from cqstore.cq_rocksdb.engine.logged_counters import logged_counters
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.cq_rocksdb.folders import log_folder
from cqstore.cq_rocksdb.keys import readable_key, topic_range
from cqstore.cq_rocksdb.queues.check import Audit
from cqstore.cq_rocksdb.queues.orphans import Orphans
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.broker_files.known_topics import TopicTable, topic_table
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore

_WATCH_SECONDS = 0.2
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
    "bytes that batches held, keys and all": COUNTERS["handed_bytes"],
}


def stats(
    root: Dir,
    topics: Annotated[
        int, typer.Option(metavar="N", min=0, help="Also the N largest topics (native engine).")
    ] = 0,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show levels, bytes, tombstones, debts of compaction and sizes of topics. Changes nothing."""
    with progress("reading"), open_store(root, config, None, None) as store:
        queues = _rocksdb_queues(store)
        rows = [
            *_facts(queues),
            *_counters(log_folder(store.paths)),
            *_levels(queues.engine),
            *_topics(queues, topics),
        ]
    output(kind).rows(rows)


def audit(root: Dir, config: ConfigFile = None, kind: Format = OutputFormat.TABLE) -> None:
    """Compare keys, entries and units with each other and list what is wrong. Changes nothing.

    A finding names the folder, the key (topic/queue/unit, or topic/queue and max or min), and what
    was expected and found there.

    Topics that the broker's metadata does not know, in whatever form it is kept, are listed with
    their queues and units: a broker with RocksDB queues deletes them. Exit code 1 if anything is
    damaged, or the metadata cannot be read. The units are compared with the log by cqstore check.
    """
    found = 0
    with progress("auditing", unit="units") as tick, open_store(root, config, None, None) as store:
        queues = _rocksdb_queues(store)
        known, fault = _known_topics(store.paths.config)
        orphans = Orphans(known.topics) if known is not None else None
        about = queues.engine.property_value(Family.DEFAULT, PROPERTIES["keys_estimate"])
        tick.measure(int(about) if about else None, "units")
        check = queues.audit(orphans, tick)

        def rows() -> Iterator[Row]:
            nonlocal found
            for row in _findings(check):
                found += 1
                yield row
            if known is not None and orphans is not None:
                yield from _orphans(orphans, known, queues.folder)

        output(kind).rows(rows())
        note(
            f"{check.queues} queues, {check.units} units; {check.expired_units} units below the"
            f" log's minimum are still on disk; {found} damaged"
        )
        if fault is None:
            note(_orphans_in_all(orphans, known))
    if fault is not None:
        raise fault
    if found:
        raise typer.Exit(1)


def compact(root: Dir, config: ConfigFile = None, kind: Format = OutputFormat.TABLE) -> None:
    """Compact both families, so that expired units and deleted topics leave the disk.

    Opens the store read-write. Ctrl-C ends it early; what was done stays.
    """
    check_is_there(root)
    if not RocksDBConsumeQueueStore.present(StorePaths(root)):  # opening would make a store
        raise RefusedStoreError("no RocksDB holds queues here", path=root)
    with open_store(root, config, None, None, read_only=False) as store:
        queues = _rocksdb_queues(store)
        before = queues.total_size_bytes()
        run = queues.compact()
        try:
            with progress("compacting") as tick:
                left = TablesLeft(queues.engine)
                while not run.wait(_WATCH_SECONDS):
                    tick.of(left.done_bytes(), left.bytes)
        except KeyboardInterrupt:
            if not run.cancel():
                note("this engine cannot interrupt a compaction: waiting for its end")
            run.wait()
        if run.fault is not None:
            raise run.fault
        record = {
            "ended": "cancelled" if run.is_cancelled else "done",
            "bytesBefore": before,
            "bytesAfter": queues.total_size_bytes(),
            "droppedUnits": run.dropped_units if queues.engine.filters_expired else None,
        }
    output(kind).record(record)
    if record["ended"] == "cancelled":
        raise typer.Exit(1)


class TablesLeft:
    """How much of the tables that were there at first a compaction has taken up."""

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine
        self._sizes = {file.name: file.size_bytes for file in engine.live_files()}
        self.bytes = sum(self._sizes.values())
        """Of all of them."""

    def done_bytes(self) -> int:
        """Return the bytes of those that are no longer there."""
        left = {file.name for file in self._engine.live_files()}
        return sum(size for name, size in self._sizes.items() if name not in left)


def _rocksdb_queues(store: MessageStore) -> RocksDBConsumeQueueStore:
    for backend in store.queues.backends():
        if isinstance(backend, RocksDBConsumeQueueStore):
            return backend
    raise RefusedStoreError("no RocksDB holds queues here", path=store.paths.root)


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
    part = f"since it was opened, as logged {logged.time}"
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


def _topics(queues: RocksDBConsumeQueueStore, count: int) -> Iterator[Row]:
    for size, topic in nlargest(count, _sizes(queues) if count else ()):
        yield _row(f"topic {topic}", "bytes in tables (estimate)", size)


def _sizes(queues: RocksDBConsumeQueueStore) -> Iterator[tuple[int, str]]:
    for topic in counted(queues.topics(), "asking for sizes", None, "topics"):
        size = queues.engine.approximate_size(Family.DEFAULT, *topic_range(topic))
        if size is None:
            note("this engine does not report the size of a topic")
            return
        yield size, topic


def _findings(check: Audit) -> Iterator[Row]:
    """Yield a row for each finding of an audit."""
    for finding in check.findings():
        queue = finding.queue
        yield {
            "severity": "damage",
            "problem": finding.problem,
            "path": finding.path,
            "keyText": readable_key(finding.key),
            "expected": finding.expected,
            "found": finding.found,
            "topic": queue.topic if queue else None,
            "queueId": queue.queue_id if queue else None,
            "queueOffset": finding.queue_offset,
            "queues": None,
            "units": None,
        }


def _orphans(orphans: Orphans, known: TopicTable, folder: Path) -> Iterator[Row]:
    """Yield a row for each topic with queues that the broker does not know."""
    for topic, orphan in sorted(orphans.found.items()):
        yield {
            "severity": "note",
            "problem": f"orphan: the broker's metadata ({known.form}) does not have the topic",
            "path": str(folder),
            "keyText": None,
            "expected": None,
            "found": None,
            "topic": topic,
            "queueId": None,
            "queueOffset": None,
            "queues": len(orphan.queue_ids),
            "units": orphan.units,
        }


def _orphans_in_all(orphans: Orphans | None, known: TopicTable | None) -> str:
    """Return a sentence on the queues of topics that the broker does not know."""
    if orphans is None or known is None:
        return "no metadata of a broker is in config/: orphans were not looked for"
    if not orphans.found:
        return f"the broker's metadata ({known.form}) has all topics: no orphans"
    each = orphans.found.values()
    return (
        f"{len(each)} topics are orphans, with {sum(len(one.queue_ids) for one in each)} queues and"
        f" {sum(one.units for one in each)} units, of which"
        f" {sum(one.expired_units for one in each)} below the log's minimum: a broker with RocksDB"
        " queues deletes them (cleanRocksDBDirtyCQIntervalMin)"
    )


def _known_topics(config: Path) -> tuple[TopicTable | None, StoreError | None]:
    """Return the topics of the broker's metadata, or why they cannot be read."""
    try:
        return topic_table(config), None
    except StoreError as exc:
        return None, exc


def _row(part: str, fact: str, value: object) -> Row:
    return {"part": part, "fact": fact, "value": value}
