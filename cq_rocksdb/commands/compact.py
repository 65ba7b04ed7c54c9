"""``cqstore rocksdb compact``."""

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, check_is_there, note, open_store
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cq_rocksdb.commands.opened_queues import rocksdb_queues
from cqstore.cq_rocksdb.engine.rocks_engine import RocksEngine
from cqstore.cq_rocksdb.folders import NO_QUEUES
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.errors import RefusedStoreError
from cqstore.store.paths import StorePaths

_WATCH_SECONDS = 0.2


def compact(root: Dir, config: ConfigFile = None, kind: Format = OutputFormat.TABLE) -> None:
    """Compact both column families to free the space of expired units and deleted topics.

    Opens the store read-write. Ctrl-C stops the compaction, at the latest after the current
    column family. Finished work is kept, and the exit code is 1.

    Examples:
        cqstore rocksdb compact DIR
        cqstore rocksdb compact DIR --config broker.conf
    """
    check_is_there(root)
    if not RocksDBConsumeQueueStore.present(StorePaths(root)):  # opening would make a store
        raise RefusedStoreError(NO_QUEUES, path=root)
    with open_store(root, config, None, None, read_only=False) as store:
        queues = rocksdb_queues(store)
        before = queues.total_size_bytes()
        run = queues.compact()
        try:
            with progress("compacting") as tick:
                left = TablesLeft(queues.engine)
                while not run.wait(_WATCH_SECONDS):
                    tick.of(left.done_bytes(), left.bytes)
        except KeyboardInterrupt:
            if not run.cancel():
                note("this engine cannot cancel a compaction: waiting until it is finished")
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
    """Progress of a compaction: the initial tables that it has replaced."""

    def __init__(self, engine: RocksEngine) -> None:
        self._engine = engine
        self._sizes = {file.name: file.size_bytes for file in engine.live_files()}
        self.bytes = sum(self._sizes.values())
        """Of all of them."""

    def done_bytes(self) -> int:
        """Return the size of the replaced tables in bytes."""
        left = {file.name for file in self._engine.live_files()}
        return sum(size for name, size in self._sizes.items() if name not in left)
