"""Finds the queues of a store, the sizes of their files, and the ends of short queues.

Source: RocketMQ ``ConsumeQueueStore.load``.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from cqstore.cq_file.batch_queue import BatchConsumeQueue
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.ext import ExtFiles
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.known_ends import KnownQueue, changed_at, forget_ends, read_ends
from cqstore.cq_file.layout import BATCH_UNIT, FILE_UNIT, batch_folder, ext_folder
from cqstore.cq_file.listing import (
    Listing,
    LogSpan,
    MakeQueue,
    Q,
    ShortEnd,
    fit_files,
    leave_out_misfits,
    list_files,
    list_queues,
    topic_names,
)
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.store.errors import os_errors
from cqstore.store.path_kind import is_dir
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig


@dataclass(slots=True)
class OpenedQueues:
    """Every queue of a store, by topic and queue id."""

    access: FileAccess
    """Shared by all simple queues, including those created later."""
    batch_access: FileAccess
    """The same for batch queues."""
    topics: dict[str, dict[int, FileConsumeQueue]]
    batch_topics: dict[str, dict[int, BatchConsumeQueue]]
    ext: dict[tuple[str, int], ExtFiles]
    misfits: dict[QueueKey, str] = field(default_factory=dict)
    """Queues with an impossible file, and that file."""
    ends_known: bool = False
    """Whether all queues except ``unknown`` are as a clean stop left them."""
    unknown: list[QueueKey] = field(default_factory=list)
    """Queues that were changed or created since."""
    left: dict[QueueKey, KnownQueue] = field(default_factory=dict)
    """Saved ends of the changed queues."""


def load_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues:
    """Return the queues from the saved ends of a clean stop, else list the folders.

    Raises:
        CorruptionError, StoreIOError: as for ``open_queues``.
    """
    known = reopen_queues(context, cache, unsynced)
    return open_queues(context, cache, unsynced) if known is None else known


def open_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues:
    """List the queues. Read-write: create their folder, remove files without a length.

    Raises:
        CorruptionError: the files have a wrong size or impossible names.
        StoreIOError: a folder cannot be listed or created.
    """
    paths, config = context.paths, context.config
    given, log = config.model_fields_set, _log_span(context)
    opened = _nothing_opened(context, cache, unsynced)
    ext_size, ext_parent = config.mapped_file_size_consume_queue_ext, str(ext_folder(paths))
    ext_access = FileAccess(ext_parent, ext_size, cache, unsynced)
    simple = list_queues(paths.consume_queue, _maker(opened, log.begin), log=log)
    batch = list_queues(batch_folder(paths), partial(QueueFiles, opened.batch_access))
    ext = list_queues(ext_folder(paths), partial(ExtFiles, ext_access))

    def fit(listing: Listing[Q], access: FileAccess, unit: int, setting: str) -> None:
        access.mapped_file_size = fit_files(
            listing, access.mapped_file_size, unit, explicit=setting in given, setting=setting
        )

    fit(simple, opened.access, FILE_UNIT.size, "mapped_file_size_consume_queue")
    fit(batch, opened.batch_access, BATCH_UNIT.size, "mapper_file_size_batch_consume_queue")
    fit(ext, ext_access, 1, "mapped_file_size_consume_queue_ext")
    if not context.read_only:
        _tidy(paths.consume_queue, [*simple.empty_last, *batch.empty_last], unsynced)
    _take_listed(opened, simple)
    opened.batch_topics.update((topic, {}) for topic in batch.empty_topics)
    for files in batch.each():
        queue = BatchConsumeQueue(opened.batch_access, *files.key, files.starts)
        opened.batch_topics.setdefault(files.topic, {})[files.queue_id] = queue
    opened.ext.update((each.key, each) for each in ext.each())
    return opened


def _nothing_opened(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues:
    """Return no queue, and the access to files of the configured sizes."""
    paths, config = context.paths, context.config
    size, batch_size = config.units_per_file * FILE_UNIT.size, _whole_batch_units(config)
    return OpenedQueues(
        FileAccess(str(paths.consume_queue), size, cache, unsynced),
        FileAccess(str(batch_folder(paths)), batch_size, cache, unsynced),
        {}, {}, {},
    )  # fmt: skip


def _maker(opened: OpenedQueues, min_phy_offset: int) -> MakeQueue[FileConsumeQueue]:
    """Return a function that makes the object of a queue that was listed."""

    def make(
        topic: str, queue_id: int, starts: list[int], end: ShortEnd | None = None
    ) -> FileConsumeQueue:
        queue = FileConsumeQueue(opened.access, topic, queue_id, starts)
        if end is not None:
            queue.set_short_end(end, min_phy_offset)
        return queue

    return make


def _log_span(context: QueueStoreContext) -> LogSpan:
    return LogSpan(context.log.min_phy_offset(), context.log.max_phy_offset())


def _take_listed(opened: OpenedQueues, listing: Listing[FileConsumeQueue]) -> None:
    """Add the queues of a listing, which has left out files that do not fit."""
    if listing.misfits or len(listing.sizes) > 1:  # the ends may be those of such files
        for queue in listing.each():
            queue.forget_short_end()
    opened.topics.update(listing.queues)
    opened.misfits.update(listing.misfits)


def reopen_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues | None:
    """Return the queues from the saved ends; opens no file. ``None``: list all queues instead.

    Queues that were changed since, and new topics, are still to be examined. Read-write: the saved
    ends are removed. Always ``None`` for stores with batch queues or extension files.
    """
    paths, config = context.paths, context.config
    others = (batch_folder(paths), ext_folder(paths))
    known = read_ends(paths) if context.last_exit_ok else None
    if not any(topic_names(paths.consume_queue)):
        known = None  # all were removed, maybe on purpose, to dispatch again
    if not context.read_only:
        forget_ends(paths)
    if known is None or any(any(topic_names(folder)) for folder in others):
        return None
    file_size, queues = known
    wanted = config.units_per_file * FILE_UNIT.size
    if "mapped_file_size_consume_queue" in config.model_fields_set and file_size != wanted:
        return None
    opened = _nothing_opened(context, cache, unsynced)
    opened.access.mapped_file_size = file_size
    opened.ends_known = True
    log_end = context.log.max_phy_offset()
    for left in queues:
        if left.end_phy > log_end:
            return None  # the log was cut since: a listing skips units after its end
        _take_known(opened, left)
    _take_new_topics(opened, paths.consume_queue, _log_span(context))
    return opened


def _take_known(opened: OpenedQueues, left: KnownQueue) -> None:
    """Add a queue with its saved end, unless its folder or last file has changed since."""
    topic, queue_id = left.topic, left.queue_id
    queue = FileConsumeQueue(opened.access, topic, queue_id, left.starts)
    queue.restore(left.first_offset, left.max_offset, left.last_phy, left.end_phy)
    if changed_at(queue) != (left.folder_changed, left.file_changed):
        queue = _list_again(opened, queue)
        opened.unknown.append(queue.key)
        opened.left[queue.key] = left
    opened.topics.setdefault(topic, {})[queue_id] = queue


def _list_again(opened: OpenedQueues, known: FileConsumeQueue) -> FileConsumeQueue:
    queue = FileConsumeQueue(opened.access, *known.key, [])
    listing = Listing[FileConsumeQueue]()
    listing.add(queue)
    queue.starts = list_files(queue, listing)
    leave_out_misfits(listing, opened.access.mapped_file_size)
    opened.misfits.update(listing.misfits)
    return queue


def _take_new_topics(opened: OpenedQueues, folder: Path, log: LogSpan) -> None:
    """Add the topics that have a folder but no saved ends."""
    new = {name for name in topic_names(folder) if name not in opened.topics}
    if not new:
        return
    listing = list_queues(folder, _maker(opened, log.begin), new, log)
    leave_out_misfits(listing, opened.access.mapped_file_size)
    _take_listed(opened, listing)
    opened.unknown.extend(queue.key for queue in listing.each())


def _tidy(folder: Path, empty_files: list[str], unsynced: UnsyncedFiles) -> None:
    """Create the folder of the queues if it is missing, and remove empty files."""
    if not is_dir(folder):
        with os_errors("create the folder of the queues", folder):
            folder.mkdir(parents=True)
        unsynced.note_folder(str(folder.parent))
    for path in empty_files:
        with os_errors("remove an empty queue file", path):
            Path(path).unlink()


def _whole_batch_units(config: StoreConfig) -> int:
    units = -(-config.mapper_file_size_batch_consume_queue // BATCH_UNIT.size)
    return units * BATCH_UNIT.size
