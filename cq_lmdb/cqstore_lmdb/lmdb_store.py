"""LmdbConsumeQueueStore: all queues of a store in one LMDB database, in ``consumequeue_lmdb``."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import ClassVar, Self

import lmdb

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import (
    RetryableDiskFullError,
    StoreClosedError,
    StoreStateError,
)
from cqstore.store.path_kind import is_file
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueFinding, QueueRestart, QueueStat
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore_lmdb.batch_plan import BatchPlan, cut_queue, expire_queue
from cqstore_lmdb.check import check_tables, read_tables
from cqstore_lmdb.commit import write_changes
from cqstore_lmdb.consume_queue import LmdbConsumeQueue
from cqstore_lmdb.database import DATA_FILE, LOCK_FILE, Database, copy_database, has_database
from cqstore_lmdb.layout import (
    CHECKPOINT,
    CHECKPOINT_KEY,
    QueueEnds,
    parse_queue_key,
    prefix_range,
    queue_key,
    topic_head,
    topic_range,
)
from cqstore_lmdb.memory import DELETED, Changes, Memory, MemoryQueue, QueueView, Snapshot

FOLDER = "consumequeue_lmdb"
MEMORY_BYTES = 64 << 20
"""A put that finds more in memory commits first."""
_MakeChange = Callable[[MemoryQueue, QueueView], MemoryQueue | None]
_PAGE = 4_096
"""Queues that are read at one moment; in between, no transaction keeps pages from being reused."""


class LmdbConsumeQueueStore(ConsumeQueueStore):
    """All queues of one store in LMDB; see ``ConsumeQueueStore`` for the guarantees."""

    name: ClassVar[str] = "lmdb"
    hides_unflushed = True

    def __init__(self, context: QueueStoreContext) -> None:
        super().__init__(context)
        self.folder = context.paths.root / FOLDER
        self._path = str(self.folder / DATA_FILE)
        self._committing = CheckedLock("a commit to LMDB")  # one freeze and commit at a time
        self._database: Database | None = None
        self._failed = False
        self._memory: Memory

    # ---- finding and opening

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether a database exists."""
        return has_database(paths.root / FOLDER)

    @classmethod
    def folders(cls, paths: StorePaths) -> list[Path]:
        """Return the folder of the database."""
        return [paths.root / FOLDER]

    @classmethod
    def own_files(cls, paths: StorePaths) -> list[Path]:
        """Return the files of the database."""
        found = (paths.root / FOLDER / name for name in (DATA_FILE, LOCK_FILE))
        return [path for path in found if is_file(path)]

    @classmethod
    def copy_open(cls, folder: Path, target: Path) -> bool:
        """Copy one commit; a file that is copied during a commit would be damaged."""
        is_mine = folder.name == FOLDER and has_database(folder)
        if is_mine:
            copy_database(folder, target)
        return is_mine

    @classmethod
    def written_to(cls, context: QueueStoreContext) -> int:
        """Return the checkpoint."""
        if not cls.present(context.paths):
            return 0
        opened = cls(replace(context, read_only=True)).load()
        try:
            return opened.dispatch_from_phy_offset()
        finally:
            opened.close()

    def load(self) -> Self:
        """Open the database; a read-only open without one has empty queues.

        Raises:
            StoreLockedError: this process has it open already.
            CorruptionError: it is damaged.
            ConsumeQueueError: LMDB cannot open it.
        """
        database = Database(self.folder, read_only=self.context.read_only)
        try:
            with database.translated(), database.begin() as txn:
                value = txn.get(CHECKPOINT_KEY)
            whole = value is not None and len(value) == CHECKPOINT.size
            checkpoint = CHECKPOINT.unpack_from(value).phy_offset if whole else 0
            self._memory = Memory(database, checkpoint)
        except BaseException:
            database.close()
            raise
        self._database = database
        return self

    def recover(self) -> None:
        """Do nothing: the database is that of its last commit."""
        self._open()

    def dispatch_from_phy_offset(self) -> int:
        """Return the checkpoint, which is committed with the units that it covers."""
        self._open()
        return self._memory.checkpoint

    def check_topic(self, topic: str) -> None:
        """Refuse names with NUL, and names too long for a key."""
        topic_head(topic)

    # ---- writing

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Keep the batch in memory until the next commit; if that is full, commit first."""
        self._writable()
        self._make_room()
        plan = BatchPlan(self.context.log.min_phy_offset())
        self._memory.read(plan.plan, batch)
        self._change(plan.changes, plan.new, batch.end_phy_offset)
        return plan.restarts

    def truncate_dirty(self, phy_offset: int) -> int:
        """Cut every queue, set the checkpoint to ``phy_offset``, commit.

        Nothing is searched unless the checkpoint is after ``phy_offset``: no queue has a unit of a
        record that ends after the checkpoint.
        """
        self._writable()
        if self._memory.checkpoint <= phy_offset:
            return 0
        count = 0
        for changes in self._changes(b"", b"\xff", partial(cut_queue, phy_offset=phy_offset)):
            count += len(changes)
            self._change(changes)
        self._memory.checkpoint = phy_offset
        self.flush()
        return count

    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Move the first unit of each queue; the next commit deletes the blocks before it."""
        self._writable()
        expire, count = partial(expire_queue, phy_offset=min_phy_offset), 0
        if expired is None:
            found = self._changes(b"", b"\xff", expire)
        else:
            keys = iter([queue_key(*queue) for queue in expired])
            pages = iter(lambda: list(islice(keys, _PAGE)), [])
            found = (self._memory.read(_changes_of, page, expire) for page in pages)
        for changes in found:
            count += len(changes)
            self._change(changes)
            self._make_room()
        return count

    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store an entry without units."""
        ends = QueueEnds(queue_offset, queue_offset, -1)
        self._writable()
        self._change({queue_key(topic, queue_id): MemoryQueue(ends, queue_offset, bytearray())})

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete entries and blocks, and commit."""
        self._writable()
        for topic in topics:
            for changes in self._changes(*topic_range(topic), lambda *_: DELETED):
                self._change(changes)
        self.flush()

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete the entry and its blocks, and commit."""
        self._writable()
        self._change({queue_key(topic, queue_id): DELETED})
        self.flush()

    def flush(self, least_pages: int = 0) -> None:
        """Commit what is in memory; ``put_batch`` does not wait for it.

        If the disk is full, nothing is lost, and the next commit repeats this one.
        """
        database = self._writable()
        if least_pages:
            return
        with self._committing.entry():
            left = True
            while left:
                left = self._memory.has_frozen  # of a commit that failed
                work = self._memory.freeze()
                if work is None:
                    return
                try:
                    write_changes(database, *work)
                except (RetryableDiskFullError, StoreStateError):
                    raise
                except BaseException:
                    self._failed = True
                    raise
                self._memory.committed()

    def _make_room(self) -> None:
        if self._memory.bytes > MEMORY_BYTES:
            self.flush()

    def _changes(self, start: bytes, end: bytes, change: _MakeChange) -> Iterator[Changes]:
        """Yield the changes that ``change`` makes of the queues in a range of keys, by page."""
        for keys in self._pages(start, end):
            yield self._memory.read(_changes_of, keys, change)

    def _change(
        self, changes: Changes, new: dict[bytes, bytes] | None = None, checkpoint: int = 0
    ) -> None:
        """Apply changes; if that is interrupted, all later writes fail."""
        try:
            self._memory.change(changes, new or {}, max(checkpoint, self._memory.checkpoint))
        except StoreStateError:
            raise
        except BaseException:
            self._failed = True
            raise

    # ---- reading

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues in order of topic and queue id."""
        self._open()
        start, end = prefix_range(prefix) if topic is None else topic_range(topic)
        if after is not None:
            start = max(start, queue_key(*after) + b"\0")
        for keys in self._pages(start, end):
            yield from map(parse_queue_key, keys)

    def _pages(self, start: bytes, end: bytes) -> Iterator[list[bytes]]:
        """Yield the keys of the queues in [start, end), sorted, in lists of one moment each."""
        memory = self._memory
        changed = memory.changed_keys(start, end)
        is_last = False
        while not is_last:
            found, start, is_last = memory.read(_page, changed, start, end)
            yield found

    def queues_estimate(self) -> int:
        """Return the number of entries, with those in memory if they are few."""
        self._open()
        changed = self._memory.changed_keys(b"", b"\xff")
        return self._memory.read(_count, changed if len(changed) < _PAGE else [])

    def queue(self, topic: str, queue_id: int) -> LmdbConsumeQueue:
        """Return the queue; its key is built once.

        Raises:
            IllegalMessageError: a key cannot contain the topic or the id.
        """
        self._open()
        return LmdbConsumeQueue(self._memory, self.context, self._path, topic, queue_id)

    def total_size_bytes(self) -> int:
        """Return the allocated bytes of the database's file."""
        return self._open().size_bytes()

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield invalid entries and blocks, missing units, and blocks without an entry."""
        database = self._open()
        ends = self._memory.stored_checkpoint, self.context.log.max_phy_offset()
        yield from self._memory.read(lambda each: list(check_tables(each, *ends, database)))

    def read_through(self, progress: Progress = noop) -> None:
        """Read all entries and blocks."""
        self._memory.read(read_tables, self._open(), progress)

    def locks(self) -> Sequence[CheckedLock]:
        """Return the locks of a commit and of the queues in memory."""
        return () if self._database is None else (self._committing, self._memory.lock)

    def describe(self) -> dict[str, object]:
        """Return version, folder and sizes."""
        database = self._open()
        info = database.env.info()
        return {
            "engine": f"LMDB {'.'.join(map(str, database.env.lib_version()))}",
            "lmdb (binding)": lmdb.__version__,
            "folder": str(self.folder),
            "file bytes": database.size_bytes(),
            "map bytes": info["map_size"],
            "checkpoint": self._memory.checkpoint,
            "queues": self.queues_estimate(),
        }

    def stats(self) -> Sequence[QueueStat]:
        """Return the sizes of the file and of what is in memory."""
        database = self._open()
        return [
            QueueStat("lmdb_file_bytes", "database", database.size_bytes()),
            QueueStat("lmdb_memory_bytes", "memory", self._memory.bytes),
        ]

    def close(self, *, flush: bool = True) -> None:
        """Commit if ``flush`` and read-write, then release the database."""
        database = self._database
        if database is None or database.is_closed:
            return
        try:
            if flush and not (self.context.read_only or self._failed or database.is_forked):
                self.flush()
        finally:
            with self._committing.entry():
                database.close()

    # ---- inside

    def _open(self) -> Database:
        database = self._database
        if database is None:
            raise StoreClosedError("the queues are not open", path=self.folder)
        database.check_open()
        return database

    def _writable(self) -> Database:
        """Return the database if units may be written.

        Raises:
            ReadOnlyStoreError: the store is open read-only.
            StoreFailedError: an earlier write failed.
        """
        database = self._open()
        self.context.check_writable(self.folder, failed=self._failed)
        return database


def _changes_of(snapshot: Snapshot, keys: Sequence[bytes], change: _MakeChange) -> Changes:
    made: Changes = {}
    for key in keys:
        view = snapshot.queue(key)
        after = None if view is None else change(snapshot.change_of(key), view)
        if after is not None:
            made[key] = after
    return made


def _page(
    snapshot: Snapshot, changed: Sequence[bytes], start: bytes, end: bytes
) -> tuple[list[bytes], bytes, bool]:
    """Return keys of queues from ``start`` on, where to continue, and whether those are all."""
    stored, is_last = snapshot.page(start, end, _PAGE)
    bound = end if is_last else stored[-1] + b"\0"
    low, high = bisect_left(changed, start), bisect_left(changed, bound)
    keys = sorted({*stored, *changed[low:high]})
    return [key for key in keys if snapshot.queue(key) is not None], bound, is_last


def _count(snapshot: Snapshot, changed: Sequence[bytes]) -> int:
    count = snapshot.stored_queues()
    for key in changed:
        count += snapshot.queue(key) is not None
        count -= snapshot.stored_ends(key) is not None
    return count
