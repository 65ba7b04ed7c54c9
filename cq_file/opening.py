"""Finds the queues of a store, the sizes of their files, and the ends of short queues.

Source: RocketMQ ``ConsumeQueueStore.load``.
"""

from dataclasses import dataclass, field
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
    QueueFolder,
    fit_files,
    leave_out_misfits,
    list_files,
    list_queues,
    sub_folders,
)
from cqstore.cq_file.queue_files import FileAccess
from cqstore.store.errors import os_errors
from cqstore.store.path_kind import is_dir
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.config import StoreConfig


@dataclass(frozen=True, slots=True)
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
    given = config.model_fields_set
    simple = list_queues(paths.consume_queue, log=_log_span(context))
    batch = list_queues(batch_folder(paths))
    ext = list_queues(ext_folder(paths))

    def access(listing: Listing, configured: int, unit: int, setting: str) -> FileAccess:
        size = fit_files(listing, configured, unit, explicit=setting in given, setting=setting)
        return FileAccess(size, cache, unsynced)

    unit = FILE_UNIT.size
    simple_access = access(
        simple, config.units_per_file * unit, unit, "mapped_file_size_consume_queue"
    )
    batch_access = access(
        batch,
        _whole_batch_units(config),
        BATCH_UNIT.size,
        "mapper_file_size_batch_consume_queue",
    )
    ext_size = config.mapped_file_size_consume_queue_ext
    ext_access = access(ext, ext_size, 1, "mapped_file_size_consume_queue_ext")
    if not context.read_only:
        _tidy(paths.consume_queue, [*simple.empty_last, *batch.empty_last], unsynced)
    batch_topics: dict[str, dict[int, BatchConsumeQueue]] = {topic: {} for topic in batch.topics}
    opened = OpenedQueues(simple_access, batch_access, {}, batch_topics, {})
    _take_listed(opened, simple, context.log.min_phy_offset())
    for (topic, queue_id, path), starts in batch.queues.items():
        opened.batch_topics[topic][queue_id] = BatchConsumeQueue(batch_access, path, starts)
    for (topic, queue_id, path), starts in ext.queues.items():
        opened.ext[topic, queue_id] = ExtFiles(ext_access, path, starts)
    return opened


def _log_span(context: QueueStoreContext) -> LogSpan:
    return LogSpan(context.log.min_phy_offset(), context.log.max_phy_offset())


def _take_listed(opened: OpenedQueues, listing: Listing, min_phy_offset: int) -> None:
    """Add the queues of a listing, which has left out files that do not fit."""
    size = opened.access.mapped_file_size
    for place, starts in listing.queues.items():
        topic, queue_id, path = place
        queue = FileConsumeQueue(opened.access, path, starts)
        end = listing.ends.pop(place, None)  # not kept longer: there may be a million
        if end is not None and end.size == size and starts:
            queue.set_short_end(end, min_phy_offset)
        opened.topics.setdefault(topic, {})[queue_id] = queue
    for (topic, queue_id, _), path in listing.misfits.items():
        opened.misfits[QueueKey(topic, queue_id)] = path


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
    if not sub_folders(str(paths.consume_queue)):
        known = None  # all were removed, maybe on purpose, to dispatch again
    if not context.read_only:
        forget_ends(paths)
    if known is None or any(sub_folders(str(folder)) for folder in others):
        return None
    file_size, queues = known
    wanted = config.units_per_file * FILE_UNIT.size
    if "mapped_file_size_consume_queue" in config.model_fields_set and file_size != wanted:
        return None
    opened = OpenedQueues(
        FileAccess(file_size, cache, unsynced),
        FileAccess(_whole_batch_units(config), cache, unsynced),
        {}, {}, {}, ends_known=True,
    )  # fmt: skip
    log_end = context.log.max_phy_offset()
    for left in queues:
        if left.end_phy > log_end:
            return None  # the log was cut since: a listing skips units after its end
        _take_known(opened, str(paths.consume_queue), left)
    _take_new_topics(opened, paths.consume_queue, _log_span(context))
    return opened


def _take_known(opened: OpenedQueues, folder: str, left: KnownQueue) -> None:
    """Add a queue with its saved end, unless its folder or last file has changed since."""
    key = QueueKey(left.topic, left.queue_id)
    queue = FileConsumeQueue(opened.access, f"{folder}/{left.topic}/{left.queue_id}", left.starts)
    queue.restore(left.first_offset, left.max_offset, left.last_phy, left.end_phy)
    if changed_at(queue) != (left.folder_changed, left.file_changed):
        queue = _list_again(opened, key, queue)
        opened.unknown.append(key)
        opened.left[key] = left
    opened.topics.setdefault(left.topic, {})[left.queue_id] = queue


def _list_again(opened: OpenedQueues, key: QueueKey, queue: FileConsumeQueue) -> FileConsumeQueue:
    place, listing = QueueFolder(*key, queue.folder), Listing()
    listing.queues[place] = list_files(place, listing)
    leave_out_misfits(listing, opened.access.mapped_file_size)
    if place in listing.misfits:
        opened.misfits[key] = listing.misfits[place]
    return FileConsumeQueue(opened.access, queue.folder, listing.queues[place])


def _take_new_topics(opened: OpenedQueues, folder: Path, log: LogSpan) -> None:
    """Add the topics that have a folder but no saved ends."""
    there = {entry.name for entry in sub_folders(str(folder))}
    new = there - opened.topics.keys()
    if not new:
        return
    listing = list_queues(folder, new, log)
    leave_out_misfits(listing, opened.access.mapped_file_size)
    _take_listed(opened, listing, log.begin)
    opened.unknown.extend(QueueKey(topic, queue_id) for topic, queue_id, _ in listing.queues)


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
