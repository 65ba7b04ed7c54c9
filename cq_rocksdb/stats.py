"""What RocksDB tells of itself while it works: its properties, under names of our own."""

from collections.abc import Iterator

from cq_rocksdb.engine import Family, RocksEngine
from store.queue.consume_queue_store import QueueStat

PROPERTIES = {
    "keys_estimate": "rocksdb.estimate-num-keys",
    "live_data_bytes_estimate": "rocksdb.estimate-live-data-size",
    "table_bytes": "rocksdb.total-sst-files-size",
    "pending_compaction_bytes_estimate": "rocksdb.estimate-pending-compaction-bytes",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "background_errors": "rocksdb.background-errors",
}
"""Our name → RocksDB's, for what both families have."""
CACHE_USAGE = "rocksdb.block-cache-usage"


def engine_stats(engine: RocksEngine) -> Iterator[QueueStat]:
    """Yield the properties of both families, and what they share as part ``database``.

    What an engine cannot tell is left out. Reads memory only.
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
