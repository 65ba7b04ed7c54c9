"""FileConsumeQueueStore: all queues of a store in files.

Reads and writes go through an LRU of descriptors, not through maps: more queues than descriptors
are slower, never lost.

Source: RocketMQ ``ConsumeQueueStore``.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from cq_file.batch_queue import BatchConsumeQueue
from cq_file.check import check_batch_queue, check_queue
from cq_file.consume_queue import UNIT_SIZE, FileConsumeQueue
from cq_file.descriptor_cache import DescriptorCache, descriptor_limit
from cq_file.dump import rows_of_file
from cq_file.ext import ConsumeQueueExt, is_address
from cq_file.file_sync import UnsyncedFiles, sync_folder
from cq_file.layout import FILE_UNIT, FileUnit, parse_file_name, parse_queue_id
from store.errors import (
    ConsumeQueueError,
    IllegalMessageError,
    QueueGapError,
    StoreClosedError,
    UnsupportedFormatError,
    os_errors,
)
from store.paths import StorePaths
from store.queue.consume_queue_store import (
    ConsumeQueueStore,
    QueueFinding,
    QueueRestart,
    QueueStoreContext,
    QueueType,
)
from store.queue.units import (
    PACKED_PREFIX,
    BlockStop,
    CqUnit,
    QueueKey,
    UnitBatch,
    UnitBlock,
    UnitRuns,
)

_MAX_NAME_BYTES = 255


class FileConsumeQueueStore(ConsumeQueueStore):
    """All file queues of one store."""

    name = "file"
    lmq_needs_multi_dispatch = True
    counts_in_checkpoint = True

    def __init__(self, context: QueueStoreContext) -> None:
        super().__init__(context)
        self._root = context.paths.consume_queue
        self._batch_root = context.paths.batch_consume_queue
        self._cache = DescriptorCache(
            descriptor_limit(context.config.queue_files_max), read_only=context.read_only
        )
        self._unsynced = UnsyncedFiles()
        self._queues: dict[tuple[str, int], FileConsumeQueue] = {}
        self._batches: dict[tuple[str, int], BatchConsumeQueue] = {}
        self._batch_topics: set[str] = set()
        self._file_bytes = context.config.units_per_file * UNIT_SIZE
        self._ext_bytes = context.config.mapped_file_size_consume_queue_ext
        self._closed = False

    # ---- finding and opening

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return whether there is any queue folder."""
        roots = (paths.consume_queue, paths.batch_consume_queue)
        return any(next(_queue_folders(root), None) is not None for root in roots)

    @classmethod
    def dump_file(cls, path: Path) -> Iterator[dict[str, object]] | None:
        """Return the units of a queue, batch queue or extension file."""
        return rows_of_file(path)

    def load(self) -> Self:
        """List the queues; what a queue holds is found when it is first used."""
        given = self.context.config.model_fields_set
        if "mapped_file_size_consume_queue" not in given:
            self._file_bytes = _found_size(self._root) or self._file_bytes
        if "mapped_file_size_consume_queue_ext" not in given:
            self._ext_bytes = _found_size(self.context.paths.consume_queue_ext) or self._ext_bytes
        for topic, queue_id, folder in _queue_folders(self._root):
            self._queues[topic, queue_id] = self._make_queue(folder)
        for topic, queue_id, folder in _queue_folders(self._batch_root):
            self._batches[topic, queue_id] = BatchConsumeQueue(Path(folder))
            self._batch_topics.add(topic)
        return self

    def _make_queue(self, folder: str) -> FileConsumeQueue:
        return FileConsumeQueue(
            folder,
            self._file_bytes,
            self._cache,
            self._unsynced,
            trust_tail=self.context.last_exit_ok,
            writable=not self.context.read_only,
        )

    def recover(self) -> None:
        """Look into every queue after a crash; after a clean stop each is looked into when used."""
        if not self.context.last_exit_ok:
            for queue in self._queues.values():
                queue.open()

    def dispatch_from_phy_offset(self) -> int:
        """Return where the newest unit's record ends, or what the checkpoint vouches for.

        The latter after a crash: then a queue may lack pages in its middle, so the units
        that are there prove nothing about others.
        """
        if not self.context.last_exit_ok:
            checkpoint = self.context.checkpoint
            if checkpoint.logics_phy_offset > 0:
                return checkpoint.logics_phy_offset
            if checkpoint.min_timestamp > 0:
                return self.context.log.file_offset_by_timestamp(checkpoint.min_timestamp)
            return 0
        newest = max((batch.last_end() for batch in self._batches.values()), default=0)
        for queue in self._queues.values():
            last = queue.open().last
            if last.phy_offset >= 0:
                newest = max(newest, last.phy_offset + last.size)
        return newest

    def check_topic(self, topic: str) -> None:
        """Refuse names that are paths, or longer than a folder's name may be."""
        if topic in {"", ".", ".."} or "/" in topic or "\0" in topic:
            raise IllegalMessageError(f"the topic {topic!r} is a path, not a folder's name")
        size = len(topic.encode("utf-8", "surrogatepass"))
        if size > _MAX_NAME_BYTES:
            raise IllegalMessageError(f"topic of {size} bytes, a folder's name has at most 255")

    # ---- writing

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Append the units of each queue with one write a file."""
        self._alive()
        for topic, _ in batch.queues:
            self.check_topic(topic)
            if topic in self._batch_topics:
                raise UnsupportedFormatError(f"{topic!r} is a BatchCQ topic: it is not written")
        runs = batch.runs()
        if not len(runs):
            return []
        return self._put_runs(runs)

    def _put_runs(self, runs: UnitRuns) -> list[QueueRestart]:
        restarts: list[QueueRestart] = []
        packed = np.ascontiguousarray(runs.units[:, :PACKED_PREFIX]).data.cast("B")
        column = np.ascontiguousarray(runs.units[:, :8]).view(">i8").ravel().astype(np.int64)
        first_phys = column[runs.starts].tolist()
        queues = self._queues
        for key, offset, start, end, first_phy in zip(
            runs.queues, runs.first_offsets, runs.starts, runs.ends, first_phys, strict=True
        ):
            queue = queues.get(key)
            if queue is None:
                folder = f"{self._root}/{key.topic}/{key.queue_id}"
                queue = self._make_queue(folder).open()
                queues[key.topic, key.queue_id] = queue
            else:
                queue.open()
            newest = queue.last.phy_offset
            if first_phy <= newest:  # the queue has these already
                known = int(np.searchsorted(column[start:end], newest, side="right"))
                start += known  # noqa: PLW2901 - the rest of the run is what is put
                offset += known  # noqa: PLW2901
                if start == end:
                    continue
            if offset != queue.end:
                restart = self._begin_anew(key, queue, offset, int(column[start]))
                if restart is not None:
                    restarts.append(restart)
            last = FileUnit._make(_unpack(packed, (end - 1) * PACKED_PREFIX))
            queue.append(packed[start * PACKED_PREFIX : end * PACKED_PREFIX], last)
        return restarts

    def _begin_anew(
        self, key: QueueKey, queue: FileConsumeQueue, offset: int, phy_offset: int
    ) -> QueueRestart | None:
        """Prepare the queue for a unit that is not at its end."""
        if queue.last.phy_offset < 0:
            queue.clear()
            queue.begin_at(offset)
            return None
        if offset > queue.end:
            if queue.last.phy_offset >= self.context.log.min_phy_offset():
                raise QueueGapError(
                    f"units are missing in queue {key.queue_id} of topic {key.topic!r}",
                    path=Path(queue.folder), phy_offset=phy_offset,
                    expected=f"queue offset {queue.end}", got=f"queue offset {offset}",
                )  # fmt: skip
            queue.clear()  # every record of its units has expired
            queue.begin_at(offset)
            return None
        dropped = queue.truncate(offset)
        if queue.last.phy_offset < 0:
            queue.begin_at(offset)
        return QueueRestart(key, dropped, phy_offset)

    def truncate_dirty(self, phy_offset: int) -> int:
        """Cut every queue that knows of records behind the log's end."""
        self._alive()
        cut = 0
        for queue in self._queues.values():
            queue.open()
            if queue.last.phy_offset >= phy_offset:
                queue.truncate(queue.first_at_or_behind(phy_offset))
                cut += 1
        return cut

    def clean_expired(self, min_phy_offset: int) -> int:
        """Delete leading files; the last file of a queue stays and keeps its next offset."""
        self._alive()
        return sum(queue.open().delete_expired(min_phy_offset) for queue in self._queues.values())

    def delete_topic(self, topic: str) -> None:
        """Remove the topic's folders."""
        self._alive()
        self.check_topic(topic)
        for key in [key for key in self._queues if key[0] == topic]:
            self._queues.pop(key).open().clear()
        for root in (self._root, self.context.paths.consume_queue_ext):
            folder = root / topic
            if folder.is_dir():
                with os_errors("delete the folder of a topic", folder):
                    shutil.rmtree(folder)
                self._unsynced.forget_folder(str(folder))
                sync_folder(str(root))

    def flush(self) -> None:
        """Sync every file that changed, then the folders."""
        self._alive()
        try:
            self._unsynced.sync(self._cache)
        except FileNotFoundError as exc:
            raise ConsumeQueueError(f"a queue file has vanished: {exc.filename}") from exc

    # ---- reading

    def queues(self, topic: str | None = None) -> Iterator[QueueKey]:
        """Yield simple queues, then batch queues."""
        self._alive()
        for key in [*self._queues, *self._batches]:
            if topic is None or key[0] == topic:
                yield QueueKey(*key)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the end of the queue."""
        queue = self._find(topic, queue_id)
        if queue is not None:
            return queue.end
        batch = self._batches.get((topic, queue_id))
        return batch.max_offset() if batch else 0

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first live unit; searched again when the log's minimum has moved."""
        log_min = self.context.log.min_phy_offset()
        queue = self._find(topic, queue_id)
        if queue is not None:
            return queue.min_offset(log_min)
        batch = self._batches.get((topic, queue_id))
        return batch.min_offset(log_min) if batch else 0

    def read_units(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Read units of 20 bytes, across files."""
        queue = self._find(topic, queue_id)
        if queue is not None:
            return queue.block(queue_offset, max_count)
        if (topic, queue_id) in self._batches:
            raise UnsupportedFormatError("a batch queue has no units of one message: iterate it")
        return UnitBlock(queue_offset, b"", UNIT_SIZE, BlockStop.END)

    def unit_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Ask the log: a file unit has no time."""
        queue = self._find(topic, queue_id)
        if queue is None:
            batch = self._batches.get((topic, queue_id))
            return batch.timestamp(queue_offset) if batch else -1
        if not queue.first <= queue_offset < queue.end:
            return -1
        unit = queue.unit(queue_offset)
        return self.context.log.store_timestamp(unit.phy_offset, unit.size)

    def iterate(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[CqUnit]:
        """Yield units, of batch queues too."""
        batch = self._batches.get((topic, queue_id))
        if batch is not None and (topic, queue_id) not in self._queues:
            return batch.iterate(queue_offset)
        return super().iterate(topic, queue_id, queue_offset)

    def queue_type(self, topic: str) -> QueueType:
        """Return BATCH for topics below ``batchconsumequeue``."""
        return QueueType.BATCH if topic in self._batch_topics else QueueType.SIMPLE

    def resolve_tags_code(self, topic: str, queue_id: int, tags_code: int) -> int | None:
        """Follow an extension address."""
        if not is_address(tags_code):
            return tags_code
        folder = self.context.paths.consume_queue_ext / topic / str(queue_id)
        return ConsumeQueueExt(folder, self._cache, self._ext_bytes).tags_code(tags_code)

    def total_size_bytes(self) -> int:
        """Return allocated bytes of all files of the backend."""
        paths = self.context.paths
        total = 0
        for root in (self._root, self._batch_root, paths.consume_queue_ext):
            for _, _, folder in _queue_folders(root):
                with os.scandir(folder) as entries:
                    total += sum(entry.stat().st_blocks * 512 for entry in entries)
        return total

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield odd files of every queue."""
        self._alive()
        for (topic, queue_id), queue in list(self._queues.items()):
            yield from check_queue(QueueKey(topic, queue_id), queue, self._file_bytes)
        for (topic, queue_id), batch in list(self._batches.items()):
            yield from check_batch_queue(QueueKey(topic, queue_id), batch)

    def describe(self) -> dict[str, object]:
        """Return the size of queue files and what the descriptors are bounded by."""
        return {
            "queue file size, bytes": self._file_bytes,
            "queue files open at once": self._cache.limit,
        }

    def close(self) -> None:
        """Flush, then let all descriptors go."""
        if self._closed:
            return
        try:
            if not self.context.read_only:
                self.flush()
        finally:
            self._closed = True
            self._cache.close()

    def _find(self, topic: str, queue_id: int) -> FileConsumeQueue | None:
        if self._closed:
            raise StoreClosedError("the queue store is closed", path=self._root)
        queue = self._queues.get((topic, queue_id))
        return None if queue is None else queue.open()

    def _alive(self) -> None:
        if self._closed:
            raise StoreClosedError("the queue store is closed", path=self._root)


_unpack = FILE_UNIT.struct.unpack_from


def _queue_folders(root: Path) -> Iterator[tuple[str, int, str]]:
    """Yield topic, queue id and folder of every queue below ``root``, and nothing else there."""
    if not root.is_dir():
        return
    with os_errors("list the queues", root), os.scandir(root) as topics:
        for topic in topics:
            if not topic.is_dir():
                continue
            with os.scandir(topic.path) as queues:
                for queue in queues:
                    queue_id = parse_queue_id(queue.name)
                    if queue_id is not None and queue.is_dir():
                        yield topic.name, queue_id, queue.path


def _found_size(root: Path) -> int | None:
    """Return the size of the first file found below ``root``."""
    for _, _, folder in _queue_folders(root):
        with os.scandir(folder) as entries:
            for entry in entries:
                if parse_file_name(entry.name) is not None and (size := entry.stat().st_size):
                    return size
    return None
