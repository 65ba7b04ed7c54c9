"""Statistics of a running RocksDB: its properties, under cqstore's names."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from cqstore.cq_rocksdb.engine.logged_counters import counters_in, logged_counters
from cqstore.cq_rocksdb.engine.private_folder import DATABASE_FILE
from cqstore.cq_rocksdb.engine.rocks_engine import Family, RocksEngine
from cqstore.store.errors import os_errors
from cqstore.store.files import bytes_on_disk
from cqstore.store.path_kind import is_dir, is_file
from cqstore.store.queue.facts import QueueStat

PROPERTIES = {
    "keys_estimate": "rocksdb.estimate-num-keys",
    "live_data_bytes_estimate": "rocksdb.estimate-live-data-size",
    "table_bytes": "rocksdb.total-sst-files-size",
    "pending_compaction_bytes_estimate": "rocksdb.estimate-pending-compaction-bytes",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "background_errors": "rocksdb.background-errors",
}
"""cqstore's name → RocksDB's, for properties of each family."""
COUNTERS = {
    "block_cache_hits": "rocksdb.block.cache.hit",
    "block_cache_misses": "rocksdb.block.cache.miss",
    "units_dropped_by_the_filter": "rocksdb.compaction.key.drop.user",
    "flush_written_bytes": "rocksdb.flush.write.bytes",
    "compaction_written_bytes": "rocksdb.compact.write.bytes",
    "wal_written_bytes": "rocksdb.wal.bytes",
    "handed_bytes": "rocksdb.bytes.written",
}
"""cqstore's name → RocksDB's, for counters that it writes to its own log."""
WRITTEN = {
    "flush": COUNTERS["flush_written_bytes"],
    "compaction": COUNTERS["compaction_written_bytes"],
    "wal": COUNTERS["wal_written_bytes"],
}
"""Cause → RocksDB's counter of the bytes that it has written to disk."""
CACHE_USAGE = "rocksdb.block-cache-usage"
STATISTICS = "rocksdb.options-statistics"


def engine_stats(engine: RocksEngine) -> Iterator[QueueStat]:
    """Yield the properties of both families; shared ones have the part ``database``.

    Properties that an engine does not report are omitted. Reads memory only.
    """
    for family in Family:
        for name, known_as in PROPERTIES.items():
            value = engine.property_value(family, known_as)
            if value is not None:
                yield QueueStat(f"rocksdb_{name}", family.value, int(value))
    usage = engine.property_value(Family.DEFAULT, CACHE_USAGE)
    if usage is not None:
        yield QueueStat("rocksdb_block_cache_bytes", "database", int(usage))
    yield QueueStat("rocksdb_dropped_units", "database", engine.dropped_units)


def written_bytes(engine: RocksEngine) -> dict[str, int]:
    """Return the bytes written to disk since the open, by cause, for both families together.

    Parses RocksDB's statistics text, which takes 0.5 ms. Empty if the engine has no statistics.
    """
    text = engine.property_value(Family.DEFAULT, STATISTICS)
    counts = counters_in(text.encode()) if text is not None else {}
    return {cause: counts[name] for cause, name in WRITTEN.items() if name in counts}


def logged_stats(log_folder: Path) -> Iterator[QueueStat]:
    """Yield the counters that RocksDB last logged (every ten minutes); nothing before that.

    Raises:
        StoreIOError: a log cannot be read.
    """
    logged = logged_counters(log_folder)
    if logged is None:
        return
    for name, known_as in COUNTERS.items():
        if known_as in logged.counts:
            part = f"logged by RocksDB at {logged.time}"
            yield QueueStat(f"rocksdb_{name}", part, logged.counts[known_as])


def database_bytes(folder: Path) -> int:
    """Return the disk space of the database's own files in ``folder``, in bytes.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    total = 0
    if is_dir(folder):
        with os_errors("measure", folder):
            for file in folder.iterdir():
                with suppress(FileNotFoundError):  # just removed by a compaction
                    if DATABASE_FILE.fullmatch(file.name) and is_file(file):
                        total += bytes_on_disk(file.stat())
    return total
