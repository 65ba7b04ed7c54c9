"""FileConsumeQueueStore: all file queues of one store.

Owns ``consumequeue/TOPIC/QUEUEID`` and the folders of batch queues and extension files next to it
(extension files are read, cut and removed, not written). Queues are in a ``QueueTable``; readers
look them up and read them without a lock, see ``named_queue`` and ``queue_files``.

Source: RocketMQ ``ConsumeQueueStore``.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from cqstore.cq_file._append import have_topics
from cqstore.cq_file.backend import FileBackend
from cqstore.cq_file.batch_queue import BatchConsumeQueue
from cqstore.cq_file.batch_units import split_batch, units_by_queue
from cqstore.cq_file.check import check_queue_files
from cqstore.cq_file.compiled import fast_appends, fast_units
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.damage import DamagedQueues
from cqstore.cq_file.descriptor_cache import (
    DescriptorCache,
    LimitWatch,
    descriptor_limit,
)
from cqstore.cq_file.ends import find_ends, safe_phy_offset
from cqstore.cq_file.file_sync import UnsyncedFiles, for_each, remove_folders
from cqstore.cq_file.known_ends import write_ends
from cqstore.cq_file.layout import FILE_UNIT, batch_folder
from cqstore.cq_file.listing import allocated_bytes, allocated_bytes_of, check_folder_name
from cqstore.cq_file.named_queue import Files, NamedFileQueue, QueueTable
from cqstore.cq_file.opening import OpenedQueues, load_queues
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    IllegalMessageError,
    QueueGapError,
    RetryableDiskFullError,
    StoreStateError,
    os_errors,
)
from cqstore.store.files import PAGE_BYTES, make_folder
from cqstore.store.path_kind import is_file
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueDamage, QueueFinding, QueueRestart, QueueType
from cqstore.store.queue.queue_reads import QueueEnd
from cqstore.store.queue.units import (
    PACKED_PREFIX,
    QueueKey,
    UnitBatch,
    UnitRuns,
)

if TYPE_CHECKING:
    from cqstore.cq_file import _append

_log = StoreLogger(__name__)
_UNIT = FILE_UNIT.size


class FileConsumeQueueStore(FileBackend, ConsumeQueueStore):
    """All consume queues in files.

    After a failed write or flush, every further write raises ``StoreFailedError``, except that a
    batch can be put again if it failed because the disk was full.
    """

    def __init__(self, context: QueueStoreContext) -> None:
        super().__init__(context)
        self._folder = str(context.paths.consume_queue)
        self._table = QueueTable()
        if type(self).queue is FileConsumeQueueStore.queue:  # a subclass may override it
            self.fast_reads = self._table
        self._unsynced = UnsyncedFiles()
        limit = descriptor_limit(context.config.queue_files_max)
        self._cache = DescriptorCache(limit, read_only=context.read_only)
        self._access: FileAccess  # set by ``load``
        self._batch_access: FileAccess
        self._loaded = False
        self._appends: _append.FileAppends  # set by ``load``, too
        self._opened: OpenedQueues | None = None  # ``None`` once the ends are found
        self._damaged = DamagedQueues()
        self._recovered = False
        self._queue_count = 0
        self._watch = LimitWatch(limit)
        self._failed = False
        self._is_cut_short = False  # a batch is stored partially, and was not put again

    # ---- opening

    def load(self) -> Self:
        """List every queue and find the file sizes, unless they were saved; opens no file."""
        opened = load_queues(self.context, self._cache, self._unsynced)
        self._opened = opened
        self._access, self._batch_access = opened.access, opened.batch_access
        self._table.simple, self._table.batch = opened.topics, opened.batch_topics
        self._table.ext = opened.ext
        self._table.fast = fast_units(self._access, self.context.log)
        self._appends = fast_appends(self._access, self._table)
        self._loaded = True
        self._queue_count = sum(map(len, self._table.simple.values()))
        self._watch.check(self._queue_count)
        return self

    def recover(self) -> None:
        """Find the end of every queue whose end is not known; read-only: writes nothing."""
        self._table.check_open()
        if self._opened is not None:
            find_ends(self.context, self._opened, self._damaged)
        self._recovered, self._opened = True, None

    def damaged_queues(self) -> Sequence[QueueDamage]:
        """Return the queues with missing or irregular files, and those found by the replay."""
        return list(self._damaged.found.values())

    def damage_is_settled(self) -> None:
        """Forget suspect queues, and accept units for all queues again."""
        self._damaged.clear_suspects()

    def dispatch_from_phy_offset(self) -> int:
        """Return the end of the last record in any queue; after a crash only of those on disk."""
        self._table.check_open()
        ends = (queue.end_phy for queue in self._simple_queues())
        newest = max(chain(ends, (queue.end_phy for queue in self._batch_queues())), default=0)
        if newest <= 0:
            return 0  # no units: the checkpoint was about queues that are removed
        start = newest if self.context.last_exit_ok else safe_phy_offset(self.context)
        self._damaged.replay_from = start
        return start

    # ---- writing (one thread at a time)

    def check_topic(self, topic: str) -> None:
        """Refuse names that are not valid folder names, and names of existing files.

        Raises:
            IllegalMessageError: the name or id is refused.
        """
        check_folder_name(topic)
        if topic not in self._table.simple and is_file(Path(self._folder, topic)):
            raise IllegalMessageError(
                f"invalid topic name {topic!r}: a file in the folder of the queues has this name"
            )

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Write each run of units with one call per file."""
        self._check_writable()
        if not len(batch):
            return []
        restarts: list[QueueRestart] = []
        if self._table.batch or batch.batch_sizes:
            batch, batches = split_batch(batch, self._table.batch.__contains__, self.takes_batches)
            restarts = self._put_batch_units(batches)
        self._check_queues(batch.queues)
        with self._failing("write the queues"):
            rest = self._append_fast(batch)
        if len(rest):
            runs = rest.runs()  # refuses impossible offsets before anything is written
            with self._failing("write the queues"):
                restarts += self._put_runs(runs)
        self._is_cut_short = False
        return restarts

    def _append_fast(self, batch: UnitBatch) -> UnitBatch:
        """Write ordinary queues on the fast path; return the units of the other queues."""
        left = self._appends.append(batch, self._damaged.held_back)
        if 1 not in left:
            return UnitBatch()
        return batch.of_queues(np.frombuffer(left, np.bool_))

    def _check_queues(self, keys: list[QueueKey]) -> None:
        """Refuse units of topics whose queues could not be written.

        Raises:
            IllegalMessageError: as for ``check_topic``.
        """
        topics = self._table.simple
        if have_topics(topics, keys):
            return
        for topic, _ in keys:
            if topic not in topics:
                self.check_topic(topic)

    def _put_batch_units(self, batch: UnitBatch) -> list[QueueRestart]:
        """Put units into batch queues, which are created as needed."""
        restarts: list[QueueRestart] = []
        self._check_queues(batch.queues)
        found = [*units_by_queue(batch)]
        with self._failing("write the batch queues"):
            for key, units in found:
                queues = self._table.batch.setdefault(key.topic, {})
                queue = queues.get(key.queue_id)
                if queue is None:
                    queue = BatchConsumeQueue(self._batch_access, *key, [])
                    queues[key.queue_id] = queue
                if (dropped := queue.put(units)) is not None:
                    restarts.append(QueueRestart(key, *dropped))
        return restarts

    def takes_batches(self, topic: str) -> bool:
        """Return whether the topic has batch queues, or no queue yet."""
        return topic in self._table.batch or topic not in self._table.simple

    def create_batch_topic(self, topic: str) -> None:
        """Create the topic's folder for batch queues, which makes it a BatchCQ topic."""
        self._check_writable()
        self.check_topic(topic)
        folder = batch_folder(self.context.paths) / topic
        with os_errors("create the folder of a BatchCQ topic", folder):
            make_folder(folder)
        self._table.batch.setdefault(topic, {})

    def _put_runs(self, runs: UnitRuns) -> list[QueueRestart]:
        """Put runs of units on the slow path, one by one; return the queues that restarted."""
        data = np.ascontiguousarray(runs.units[:, :PACKED_PREFIX]).tobytes()
        restarts: list[QueueRestart] = []
        topics, damaged = self._table.simple, self._damaged
        min_phy_offset, held_back = self.context.log.min_phy_offset(), damaged.held_back
        for key, offset, start, end in zip(
            runs.queues, runs.first_offsets, runs.starts, runs.ends, strict=True
        ):
            if held_back and key in held_back:
                continue
            queue = topics.get(key[0], {}).get(key[1]) or self._new_queue(key)
            if offset > queue.max_offset and damaged.shown_by_replay(
                key, queue, int(runs.phys[start]), min_phy_offset
            ):
                continue
            dropped = queue.put(offset, data[start * _UNIT : end * _UNIT], min_phy_offset)
            if dropped is not None:
                restarts.append(QueueRestart(key, *dropped))
        return restarts

    def allow_expiry(self, min_phy_offset: int) -> None:
        """End the replay: from now on, a unit that leaves a gap is an error."""
        _ = min_phy_offset
        self._damaged.replay_from = 0

    def _new_queue(self, key: QueueKey) -> FileConsumeQueue:
        queue = FileConsumeQueue(self._access, *key, [])
        self._table.simple.setdefault(key.topic, {})[key.queue_id] = queue
        self._queue_count += 1
        self._watch.check(self._queue_count)
        return queue

    def truncate_dirty(self, phy_offset: int) -> int:
        """Remove units after the end of the log. Read-only: only in memory."""
        self._table.check_open()
        read_only = self.context.read_only
        if not read_only:
            self._check_writable()
        queues: list[Files] = [*self._simple_queues(), *self._batch_queues()]
        with self._failing("truncate the queues"):
            return sum(queue.truncate_dirty(phy_offset, read_only=read_only) for queue in queues)

    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Remove leading files whose records have all expired; return their number."""
        _ = expired  # the last unit of a file is decisive; it is in memory or takes one read
        self._check_writable()
        queues: list[Files] = [*self._simple_queues(), *self._batch_queues()]
        with self._failing("delete expired queue files"):
            return sum(queue.clean_expired(min_phy_offset) for queue in queues)

    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Create an empty queue that continues at ``queue_offset``: a file of pre-blanks."""
        self._check_writable()
        self.check_topic(topic)
        key = QueueKey(topic, queue_id)
        with self._failing("restore the end of a queue"):
            queue = self._table.simple.get(topic, {}).get(queue_id) or self._new_queue(key)
            queue.begin_at(queue_offset)

    def delete_topics(self, topics: Sequence[str]) -> None:
        """Remove the topics' folders of queues, batch queues and extension files."""
        self._check_writable()
        gone = {topic for topic in topics if _can_have_queues(topic)}
        parents = self.folders(self.context.paths)
        removed: list[QueueFiles] = []
        with self._failing("remove queues"):
            for topic in gone:
                simple = self._table.simple.pop(topic, {})
                self._damaged.forget(QueueKey(topic, queue_id) for queue_id in simple)
                removed += [*simple.values(), *self._table.batch.pop(topic, {}).values()]
            removed += [self._table.ext.pop(key) for key in [*self._table.ext] if key[0] in gone]
            self._remove(removed, [parent / topic for parent in parents for topic in gone])

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Remove the folder of a queue; its topic keeps its type."""
        self._check_writable()
        with self._failing("remove a queue"):
            self._damaged.forget([QueueKey(topic, queue_id)])
            kinds = self._table.simple, self._table.batch
            found = [kind.get(topic, {}).pop(queue_id, None) for kind in kinds]
            for queue in found:
                if queue is not None:
                    self._remove([queue], [Path(queue.folder)])

    def _remove(self, queues: Sequence[QueueFiles], folders: Sequence[Path]) -> None:
        """Empty ``queues`` for their readers, and remove ``folders``, which contain them."""
        files = [path for queue in queues for path in queue.abandon()]
        remove_folders(folders)
        self._unsynced.forget_folders([*map(str, folders), *(queue.folder for queue in queues)])
        for path in files:
            self._unsynced.forget(path)
        for_each(self._cache.forget, files)  # closing a removed file waits for its blocks

    def flush(self, least_pages: int = 0) -> None:
        """Sync changed files one by one, or if there are many, the whole file system."""
        self._table.check_open()
        if self.context.read_only:
            return
        self._check_writable()
        with self._failing("flush the queues"):
            self._unsynced.sync(self._cache, least_pages * PAGE_BYTES)

    # ---- reading (any thread)

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield every queue that has a folder, simple and batch, by topic and queue id."""
        simple, batch = self._table.kinds()
        known = {*simple, *batch} if topic is None else {topic}
        names = sorted(name for name in known if name.startswith(prefix))
        if after is not None:
            names = names[bisect_left(names, after.topic) :]
        found = (
            QueueKey(name, queue_id)
            for name in names
            for queue_id in sorted({*simple.get(name, ()), *batch.get(name, ())})
        )
        return found if after is None else (key for key in found if key > after)

    def queues_estimate(self) -> int:
        """Return the number of queue folders; a queue of both kinds counts twice."""
        return sum(len(queues) for kind in self._table.kinds() for queues in kind.values())

    def queue(self, topic: str, queue_id: int) -> NamedFileQueue:
        """Return the queue, which looks its files up with each call."""
        table = self._table
        if table.closed:
            table.check_open()
        return NamedFileQueue(table, self.context, topic, queue_id)

    def queue_ends(self, queues: Iterable[QueueKey] | None = None) -> Iterator[QueueEnd]:
        """Yield the ends, which are in memory."""
        max_offset = self._table.max_offset
        return ((key, max_offset(*key)) for key in (self.queues() if queues is None else queues))

    def queue_type(self, topic: str) -> QueueType:
        """Return ``BATCH`` if the topic has a folder of batch queues."""
        _, batch = self._table.kinds()
        return QueueType.BATCH if topic in batch else QueueType.SIMPLE

    def total_size_bytes(self) -> int:
        """Return the allocated blocks of queue, batch queue and extension files."""
        self._table.check_open()
        return sum(map(allocated_bytes, self.folders(self.context.paths)))

    def topic_size_bytes(self, topic: str) -> int:
        """Return the allocated blocks of a topic's queue, batch queue and extension files."""
        self._table.check_open()
        if not _can_have_queues(topic):
            return 0
        return sum(
            allocated_bytes_of(parent / topic) for parent in self.folders(self.context.paths)
        )

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield damage, invalid names and sizes, gaps, data after ends, invalid addresses."""
        simple, batch = self._table.kinds()
        damaged = [each for each in self.damaged_queues() if not each.is_suspect]
        lost = (QueueFinding(each.problem, each.path, each.queue) for each in damaged)
        size = self._access.mapped_file_size
        wrong = check_queue_files(
            self.context.paths, simple, batch, size,
            lambda topic, queue_id, code: self.queue(topic, queue_id).resolve_tags_code(code),
        )  # fmt: skip
        return chain(lost, wrong)

    @property
    def units_per_file(self) -> int:
        """Return the number of units per file."""
        return self._access.mapped_file_size // _UNIT

    def locks(self) -> Sequence[CheckedLock]:
        """Return the locks of open files and of changed files."""
        return self._cache.lock, *self._unsynced.locks

    def describe(self) -> dict[str, object]:
        """Return the size and number of the files. Accesses no file."""
        simple, batch, ext = self._simple_queues(), self._batch_queues(), self._table.ext
        self._table.check_open()
        facts: dict[str, object] = {
            "queue file size": self._access.mapped_file_size,
            "queues": len(simple),
            "queue files": sum(len(queue.starts) for queue in simple),
            "descriptor limit": self._cache.limit,
        }
        if self._damaged.found:
            facts["damaged queues"] = len(self._damaged.found)
        if batch:
            facts["batch queues"] = len(batch)
        if ext:
            facts["queues with extension files"] = len(ext)
        return facts

    def close(self, *, flush: bool = True) -> None:
        """Flush if ``flush``, the store is read-write and nothing failed, then close every file.

        If interrupted, the next call closes the rest and flushes nothing.
        """
        try:
            # Otherwise there may be bytes after an end.
            sound = flush and not (self._table.closed or self._failed or self._is_cut_short)
            if self._loaded and not self.context.read_only and sound:
                self._unsynced.sync(self._cache)
                # An open that failed before the end of ``recover`` has no ends to save.
                if self._recovered and not (self._table.batch or self._table.ext):
                    size = self._access.mapped_file_size
                    write_ends(self.context.paths, size, self._table.simple)
        finally:
            self._table.closed = True
            self._forget_queues()
            self._cache.close()

    def _forget_queues(self) -> None:
        """Release all queues: references in cycles would keep them until the collector runs."""
        self._table.simple, self._table.batch, self._table.ext = {}, {}, {}
        self._opened = None
        if self._loaded:
            self._appends = fast_appends(self._access, self._table)

    # ---- small parts

    def _simple_queues(self) -> list[FileConsumeQueue]:
        topics = [*self._table.simple.values()]
        return [queue for queues in topics for queue in [*queues.values()]]

    def _batch_queues(self) -> list[BatchConsumeQueue]:
        topics = [*self._table.batch.values()]
        return [queue for queues in topics for queue in [*queues.values()]]

    @contextmanager
    def _failing(self, action: str) -> Iterator[None]:
        """Fail all later writes if the block is interrupted, unless nothing was written before.

        After a disk error, a missing file, or an exception of a signal handler, the state in memory
        may differ from the content of the files.
        """
        try:
            with os_errors(action, self._folder):
                yield
        except (QueueGapError, StoreStateError):
            raise
        except RetryableDiskFullError:
            self._is_cut_short = True
            raise
        except BaseException:
            self._failed = True
            raise

    def _check_writable(self) -> None:
        self._table.check_open()
        self.context.check_writable(failed=self._failed)


def _can_have_queues(topic: str) -> bool:
    """Return whether the topic is a valid folder name, and not a path to another folder."""
    try:
        check_folder_name(topic)
    except IllegalMessageError:
        return False
    return True
