"""RocksDBConsumeQueueStore: all queues of a store in one RocksDB.

The database is in ``consumequeue`` (maybe with file queues) or ``consumequeue_rocksdb``.
Invariant: units, their ``max`` entries and the checkpoint entry are written in one batch, and units
are flushed first. So on disk no entry refers to a missing unit, and everything after the checkpoint
entry is replayed from the log.

Source: RocketMQ ``RocksDBConsumeQueueStore``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Self

from cqstore.cq_rocksdb.engine.choice import WITHOUT_FILTER, check_settings, open_engine, warn_once
from cqstore.cq_rocksdb.engine.compaction import CompactionRun
from cqstore.cq_rocksdb.engine.database_stats import (
    database_bytes,
    engine_stats,
    logged_stats,
    written_bytes,
)
from cqstore.cq_rocksdb.engine.errors import REBUILD, RocksDBDamagedError, RocksDBError
from cqstore.cq_rocksdb.engine.private_folder import DATABASE_FILE
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine
from cqstore.cq_rocksdb.folders import (
    database_folder,
    database_folders,
    holds_only_tables,
    log_folder,
    separate_folder,
)
from cqstore.cq_rocksdb.keys import (
    OFFSET_ENTRY,
    OffsetEntry,
    check_topic,
    entry_prefix,
    max_key,
    min_key,
    prefix_end,
    queue_prefix,
    topic_range,
)
from cqstore.cq_rocksdb.queues.batch_writer import BatchWriter, checkpoint_put
from cqstore.cq_rocksdb.queues.check import END_OF_KEYS, SCAN_ROWS, Audit
from cqstore.cq_rocksdb.queues.consume_queue import RocksDBConsumeQueue
from cqstore.cq_rocksdb.queues.cut import clean_expired, truncate_dirty
from cqstore.cq_rocksdb.queues.offset_table import NO_UNIT, OffsetTable
from cqstore.cq_rocksdb.queues.orphans import Orphans
from cqstore.cq_rocksdb.queues.spans import entry_bytes, queue_spans, unit_timestamps
from cqstore.cq_rocksdb.queues.unit_table import UnitTable
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    RefusedStoreError,
    StoreClosedError,
    StoreStateError,
)
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueFinding, QueueRestart, QueueSpan, QueueStat, QueueType
from cqstore.store.queue.queue_reads import QueueEnd
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.settings.config import RocksDBEngine, StoreConfig

_LOG = StoreLogger(__name__)
_FILE_GONE = "No such file or directory"


class RocksDBConsumeQueueStore(ConsumeQueueStore):
    """All queues of one store in one RocksDB; see ``ConsumeQueueStore`` for the guarantees."""

    name: ClassVar[str] = "rocksdb"
    store_types: ClassVar[tuple[str, ...]] = ("defaultRocksDB",)
    takes_a_share: ClassVar[bool] = True
    fills_holes: ClassVar[bool] = True
    hides_unflushed = True

    def __init__(self, context: QueueStoreContext) -> None:
        super().__init__(context)
        self.folder = context.paths.consume_queue
        self._engine: RocksEngine | None = None
        self._engine_reason = ""
        self.compaction: CompactionRun | None = None
        """The last started compaction."""
        self._closed = False
        self._failed = False
        # No ``max`` entry is after both this and the checkpoint entry.
        self._sound_from = 0 if context.last_exit_ok else LONG_MAX
        self._offsets: OffsetTable
        self._units: UnitTable
        self._batches: BatchWriter

    # ---- finding and opening

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether a database exists.

        Raises:
            RefusedStoreError: its file CURRENT is missing, and its folder has no folders of queues.
        """
        if database_folder(paths) is not None:
            return True
        for folder in database_folders(paths):
            if holds_only_tables(folder) and not exists(paths.replacing):  # else partly moved
                raise RefusedStoreError(
                    "the file CURRENT of the RocksDB queues is missing. Move the folder away and"
                    " open the store with the backend rocksdb (storeType=defaultRocksDB): the"
                    " queues are rebuilt from the commit log",
                    path=folder,
                )
        return False

    @classmethod
    def check_settings(cls, config: StoreConfig) -> None:
        """Refuse an engine that is not available, and invalid options."""
        check_settings(config)

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folder of file queues and the database's own."""
        return database_folders(paths)

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the files of the database; file queues may be in the same folder."""
        folders = filter(is_dir, database_folders(paths))
        entries = (path for folder in folders for path in folder.iterdir())
        return [path for path in entries if DATABASE_FILE.fullmatch(path.name) and is_file(path)]

    @classmethod
    def watch(cls, paths: StorePaths) -> Sequence[QueueStat]:
        """Return the counters in RocksDB's own log."""
        return list(logged_stats(log_folder(paths)))

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return the checkpoint entry."""
        if database_folder(context.paths) is None:
            return 0
        opened = cls(replace(context, read_only=True)).load()
        try:
            return opened.dispatch_from_phy_offset()
        finally:
            opened.close()

    def load(self) -> Self:
        """Open the database; a read-only open without one has empty queues.

        Raises:
            StoreLockedError: the database is already in use.
            RocksDBDamagedError: it is damaged or lacks a file; the message contains the remedy.
            RocksDBError: the database cannot be opened.
        """
        context = self.context
        separate = context.config.use_separate_store_path_for_rocksdb_cq
        new = separate_folder(context.paths) if separate else context.paths.consume_queue
        self.folder = database_folder(context.paths) or new
        try:
            self._engine, self._engine_reason = open_engine(
                self.folder,
                context.config,
                log_folder(context.paths),
                read_only=context.read_only,
            )
        except RocksDBError as exc:
            if isinstance(exc, RocksDBDamagedError) or _FILE_GONE not in exc.reason:
                raise
            advised = f"{exc.reason}; {REBUILD}"
            raise RocksDBDamagedError(advised, status=exc.status, path=exc.path) from exc.__cause__
        self._offsets = OffsetTable(self._engine, context.config.rocksdb_hot_queues)
        self._units = UnitTable(self._engine)
        self._batches = BatchWriter(
            self._engine, self._offsets, self._units, context.log.min_phy_offset
        )
        _LOG.info("opened the RocksDB queues in %s", self.folder)
        if not context.read_only and (lacking := self.lacking()):
            warn_once(lacking)
        return self

    def recover(self) -> None:
        """Do nothing: the database recovered when it was opened."""
        self._open_engine()

    def dispatch_from_phy_offset(self) -> int:
        """Return the checkpoint entry, which is flushed together with the units that it covers."""
        self._open_engine()
        return self._offsets.checkpoint()

    def check_topic(self, topic: str) -> None:
        """Refuse the checkpoint entry's own topic, and names too long for RocketMQ's keys."""
        check_topic(topic)

    # ---- writing

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Write the batch with its ``max`` entries and the checkpoint entry at once.

        The checkpoint entry never decreases (RocketMQ's does during a replay).
        """
        self._writable_engine()
        return self._batches.write(batch, self._apply)

    def truncate_dirty(self, phy_offset: int) -> int:
        """Cut every queue, reset the checkpoint entry to ``phy_offset``, flush.

        After a clean stop, nothing is searched unless the checkpoint entry is after ``phy_offset``;
        after a crash, all ``max`` entries are read, once.
        """
        self._writable_engine()
        checkpoint = self._offsets.checkpoint()
        if max(checkpoint, self._sound_from) <= phy_offset:
            return 0
        cut = 0
        for write in truncate_dirty(self._offsets, self._units, phy_offset):
            cut += len(write.puts)
            self._write(write, self._offsets.forget_all)
        entry = checkpoint_put(min(checkpoint, phy_offset))
        self._write(EngineBatch(puts=[entry]), self._offsets.forget_all)
        self.flush()
        self._sound_from = phy_offset
        return cut

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Make compactions drop units of records below ``min_phy_offset``."""
        self._writable_engine().expire_below(min_phy_offset)

    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Store the ``min`` entries of the queues in ``expired``, and start a compaction.

        A compaction filter drops the units, and without ``expired`` no queue is read. Without a
        filter, units are deleted by ranges, and without ``expired`` every ``max`` entry is read.
        The ranges are then flushed, because in a memtable they would slow down every seek.
        ``compaction`` is set to the new compaction, unless one is running.
        """
        engine = self._writable_engine()
        engine.expire_below(min_phy_offset)
        offsets = self._offsets
        lasts: Iterable[tuple[bytes, OffsetEntry]] = ()
        if expired is not None:
            prefixes = (queue_prefix(*key) for key in expired)
            lasts = ((prefix, offsets.last(prefix)) for prefix in prefixes)
        elif not engine.filters_expired:
            lasts = ((queue_prefix(*key), last) for key, last in offsets.last_units())
        cleaned = 0
        delete = not engine.filters_expired
        for write in clean_expired(lasts, self._units, min_phy_offset, delete=delete):
            cleaned += len(write.puts)
            self._write(write)  # the cache stays: expired first units are ignored
        if cleaned and delete:
            self.flush()
        if cleaned or engine.filters_expired:
            self.compact([Family.DEFAULT])
        return cleaned

    def compact(self, families: Sequence[Family] = tuple(Family)) -> CompactionRun:
        """Start a compaction unless one is running; return the running one."""
        engine = self._writable_engine()
        if self.compaction is None or not self.compaction.is_running:
            self.compaction = CompactionRun(engine, families)
        return self.compaction

    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Write a ``max`` entry as if its unit had expired."""
        self._writable_engine()
        entry = OffsetEntry(NO_UNIT.phy_offset, queue_offset - 1)
        prefix = queue_prefix(topic, queue_id)
        write = EngineBatch(puts=[(max_key(prefix), OFFSET_ENTRY.pack(entry))])
        self._write(write, partial(self._offsets.forget, [prefix]))

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete a range of units per topic and the entries one by one, then flush once.

        Range deletes in the family ``offset`` would slow down every lookup of an entry.
        """
        self._writable_engine()
        bounds = [topic_range(topic) for topic in topics]
        entries = [key for each in bounds for key, _ in self._offsets.raw_entries(each)]
        write = EngineBatch(
            delete_ranges=[(Family.DEFAULT, *each) for each in bounds],
            deletes=[(Family.OFFSET, key) for key in entries],
        )
        self._write(write, partial(self._offsets.forget, map(entry_prefix, entries)))
        self.flush()

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete the range of its units and both its entries, then flush."""
        self._writable_engine()
        prefix = queue_prefix(topic, queue_id)
        write = EngineBatch(
            delete_ranges=[(Family.DEFAULT, prefix, prefix_end(prefix))],
            deletes=[(Family.OFFSET, key(prefix)) for key in (max_key, min_key)],
        )
        self._write(write, partial(self._offsets.forget, [prefix]))
        self.flush()

    def flush(self, least_pages: int = 0) -> None:
        """Flush both families, units first; in between, RocksDB flushes full memtables itself."""
        engine = self._writable_engine()
        if least_pages:
            return
        try:
            engine.flush()
        except StoreStateError:
            raise
        except BaseException:
            self._failed = True
            raise

    def _write(self, write: EngineBatch, written: Callable[[], object] | None = None) -> None:
        """Write a batch; ``written`` then updates the cache."""
        self._apply(partial(self._writable_engine().write, write), written)

    def _apply(
        self, write: Callable[[], object], written: Callable[[], object] | None = None
    ) -> None:
        """Call ``write``, then ``written``.

        If the two are interrupted (even by an exception of a signal handler), all later writes
        fail, and the cache is cleared: readers read the database again.
        """
        try:
            write()
            if written is not None:
                written()
        except StoreStateError:
            raise
        except BaseException:
            self._failed = True
            self._offsets.forget_all()
            raise

    # ---- reading

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues that have a ``max`` entry, in key order."""
        self._open_engine()
        for queue, _ in self._offsets.last_units(topic, after, prefix):
            yield queue

    def queues_estimate(self) -> int | None:
        """Return the number of ``max`` entries: exact if few, else RocksDB's estimate."""
        self._open_engine()
        return self._offsets.queues_estimate()

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Read the entries and first units of many queues at once, bypassing the cache."""
        engine, minimum = self._open_engine(), self.context.log.min_phy_offset()
        last_units = self._offsets.last_units(topic, after)
        return queue_spans(engine, last_units, minimum, lambda *key: self.queue(*key).min_offset())

    def spans_of(self, queues: Iterable[QueueKey]) -> Iterator[QueueSpan]:
        """Read entries and first units of these queues at once, bypassing the cache."""
        engine, minimum = self._open_engine(), self.context.log.min_phy_offset()
        last_units = self._offsets.last_units_of(queues)
        return queue_spans(engine, last_units, minimum, lambda *key: self.queue(*key).min_offset())

    def queue_ends(self, queues: Iterable[QueueKey] | None = None) -> Iterator[QueueEnd]:
        """Read many ``max`` entries at once, those of all queues with one scan."""
        self._open_engine()
        return self._offsets.ends(queues)

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Read the store times of many units at once, bypassing the cache."""
        log = self.context.log
        return unit_timestamps(
            self._open_engine(), units, log.min_phy_offset(), log.max_phy_offset()
        )

    def queue(self, topic: str, queue_id: int) -> RocksDBConsumeQueue:
        """Return the queue; its key prefix is built once.

        Raises:
            IllegalMessageError: the topic is not valid UTF-8, or the id needs more than four bytes.
        """
        if self._closed or self._engine is None:
            self._open_engine()
        return RocksDBConsumeQueue(self._offsets, self._units, self.context, topic, queue_id)

    def queue_type(self, topic: str) -> QueueType:
        """Return the queue type of RocksDB, for every topic."""
        _ = topic
        return QueueType.ROCKSDB

    def total_size_bytes(self) -> int:
        """Return the allocated bytes of the database's files, without file queues next to them."""
        self._open_engine()
        return database_bytes(self.folder)

    def topic_size_bytes(self, topic: str) -> int:
        """Return the bytes of a topic's entries before compression, without expired units."""
        return sum(map(entry_bytes, self.spans(topic)))

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield invalid keys and values, entries that do not match their units, and holes."""
        yield from self.audit().findings()

    def read_through(self, progress: Progress = noop) -> None:
        """Read every block of both families."""
        engine, count = self._open_engine(), 0
        for family in (Family.OFFSET, Family.DEFAULT):
            start, rows = b"", [(b"", b"")]
            while rows:
                rows = engine.scan(family, start, END_OF_KEYS, SCAN_ROWS)
                start = rows[-1][0] + b"\0" if rows else start
                count += len(rows)
                progress(count)

    def audit(self, orphans: Orphans | None = None, progress: Progress = noop) -> Audit:
        """Return a check of the database, not yet run, which reports its progress in units."""
        engine = self._open_engine()
        return Audit(
            engine, self._offsets, self._units, self.context.log, self.folder, orphans, progress
        )

    @property
    def engine(self) -> RocksEngine:
        """Return the open engine, for RocksDB's own statistics."""
        return self._open_engine()

    def locks(self) -> Sequence[CheckedLock]:
        """Return the locks of the offset table and of the database's writes."""
        if self._engine is None:  # the open failed, and the backend is detached
            return ()
        return self._offsets.lock, self._engine.write_lock

    def describe(self) -> dict[str, object]:
        """Return engine, versions, folder and sizes."""
        engine = self._open_engine()
        estimates = {
            f"{family.value} keys (estimate)": engine.property_value(
                family, "rocksdb.estimate-num-keys"
            )
            for family in Family
        }
        return {
            "engine": f"{engine.name} ({self._engine_reason})",
            **engine.versions(),
            "folder": str(self.folder),
            "table files": len(engine.live_files()),
            "table bytes": sum(file.size_bytes for file in engine.live_files()),
            "checkpoint": self._offsets.checkpoint(),
            **estimates,
        }

    def lacking(self) -> str:
        """Return a warning if there is no compaction filter, unless rocksdict is configured."""
        configured = self.context.config.rocksdb_engine is RocksDBEngine.ROCKSDICT
        return "" if configured or self._open_engine().filters_expired else WITHOUT_FILTER

    def stats(self) -> Sequence[QueueStat]:
        """Return RocksDB's properties, and the number of units written on the slow path."""
        found = list(engine_stats(self._open_engine()))
        planned = self._batches.planned_units
        return [*found, QueueStat("rocksdb_planned_units", "database", planned)]

    def written_bytes(self) -> Mapping[str, int]:
        """Return the bytes written by flushes, compactions and the write-ahead log."""
        return written_bytes(self._open_engine())

    def close(self, *, flush: bool = True) -> None:
        """Wait for running calls, flush if ``flush`` and read-write, release the database."""
        self._closed = True
        if self.compaction is not None:
            self.compaction.cancel()
            self.compaction.wait()
        if self._engine is not None:
            if "_offsets" in self.__dict__:  # ``load`` got that far
                self._offsets.close()
            self._engine.close(flush=flush and not self._failed)

    # ---- inside

    def _open_engine(self) -> RocksEngine:
        engine = self._engine
        if self._closed or engine is None:
            raise StoreClosedError("the queues are not open", path=self.folder)
        return engine

    def _writable_engine(self) -> RocksEngine:
        """Return the engine if units may be written.

        Raises:
            ReadOnlyStoreError: the store is open read-only.
            StoreFailedError: an earlier write failed.
        """
        engine = self._open_engine()
        self.context.check_writable(self.folder, failed=self._failed)
        return engine
