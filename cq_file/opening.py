"""Which queues a store has, and how large their files are; opens no file.

Source: RocketMQ ``ConsumeQueueStore.load``.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

from cq_file.batch_queue import BatchConsumeQueue
from cq_file.consume_queue import FileConsumeQueue
from cq_file.descriptor_cache import DescriptorCache
from cq_file.ext import ExtFiles
from cq_file.file_sync import UnsyncedFiles
from cq_file.known_ends import forget_ends, read_ends
from cq_file.layout import BATCH_UNIT, FILE_UNIT
from cq_file.listing import Listing, entries, list_queues, one_file_size
from cq_file.queue_files import FileAccess
from store.config import StoreConfig
from store.errors import os_errors
from store.queue.consume_queue_store import QueueStoreContext

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedQueues:
    """Every queue of a store, by topic and queue id."""

    access: FileAccess
    """What simple queues share, those yet to be made too."""
    topics: dict[str, dict[int, FileConsumeQueue]]
    batch_topics: dict[str, dict[int, BatchConsumeQueue]]
    ext: dict[tuple[str, int], ExtFiles]
    ends_known: bool = False
    """The queues' ends are those that a clean stop wrote down: no file was looked at."""
    incomplete: bool = False
    """Topics that a clean stop knew of have no folder any more."""


def load_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues:
    """Return the queues as a clean stop left them, else list them.

    Raises:
        CorruptionError, StoreIOError: as ``open_queues``.
    """
    known = reopen_queues(context, cache, unsynced)
    if known is None:
        return open_queues(context, cache, unsynced)
    lost = lost_topics(context.paths.consume_queue, known.topics)
    if lost is None:
        return replace(known, ends_known=True)
    if lost:
        _LOG.warning("the folders of %d topics are gone, all is dispatched again", len(lost))
    return replace(open_queues(context, cache, unsynced), incomplete=bool(lost))


def open_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues:
    """List the queues. Read-write: make their folder, remove files that were never sized.

    Raises:
        CorruptionError: a file is of the wrong size or has an impossible name.
        StoreIOError: a folder cannot be listed or made.
    """
    paths, config = context.paths, context.config
    given = config.model_fields_set
    simple, batch = list_queues(paths.consume_queue), list_queues(paths.batch_consume_queue)
    ext = list_queues(paths.consume_queue_ext)

    def access(listing: Listing, configured: int, unit: int, setting: str) -> FileAccess:
        size = one_file_size(listing, configured, unit, explicit=setting in given)
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
    opened = OpenedQueues(simple_access, {}, {topic: {} for topic in batch.topics}, {})
    for (topic, queue_id, path), starts in simple.queues.items():
        queue = FileConsumeQueue(simple_access, path, starts)
        opened.topics.setdefault(topic, {})[queue_id] = queue
    for (topic, queue_id, path), starts in batch.queues.items():
        opened.batch_topics[topic][queue_id] = BatchConsumeQueue(batch_access, path, starts)
    for (topic, queue_id, path), starts in ext.queues.items():
        opened.ext[topic, queue_id] = ExtFiles(ext_access, path, starts)
    return opened


def reopen_queues(
    context: QueueStoreContext, cache: DescriptorCache, unsynced: UnsyncedFiles
) -> OpenedQueues | None:
    """Return the queues as the last clean stop left them, no file touched; ``None``: look at them.

    Read-write: what was written down is removed. Stores with batch queues or extension files are
    always looked at.
    """
    paths, config = context.paths, context.config
    others = (paths.batch_consume_queue, paths.consume_queue_ext)
    known = read_ends(paths) if context.last_exit_ok else None
    if not context.read_only:
        forget_ends(paths)
    if known is None or any(folder.exists() for folder in others):
        return None
    file_size, queues = known
    wanted = config.units_per_file * FILE_UNIT.size
    if "mapped_file_size_consume_queue" in config.model_fields_set and file_size != wanted:
        return None
    opened = OpenedQueues(FileAccess(file_size, cache, unsynced), {}, {}, {})
    folder = str(paths.consume_queue)
    log_end = context.log.max_phy_offset()
    for topic, queue_id, first_offset, max_offset, last_phy, end_phy, starts in queues:
        if end_phy > log_end:
            return None  # the log was cut since: looking leaves out what leads behind its end
        queue = FileConsumeQueue(opened.access, f"{folder}/{topic}/{queue_id}", starts)
        queue.restore(first_offset, max_offset, last_phy, end_phy)
        opened.topics.setdefault(topic, {})[queue_id] = queue
    return opened


def lost_topics(folder: Path, topics: Collection[str]) -> set[str] | None:
    """Return which of ``topics`` have no folder any more; ``None`` if all folders are just theirs.

    An empty set: none is lost, but there are folders of others.

    Raises:
        StoreIOError: ``folder`` cannot be listed.
    """
    there = {entry.name for entry in entries(str(folder)) if entry.is_dir()}
    known = set(topics)
    return None if there == known else known - there


def _tidy(folder: Path, empty_files: list[str], unsynced: UnsyncedFiles) -> None:
    if not folder.is_dir():
        with os_errors("make the folder of the queues", folder):
            folder.mkdir(parents=True)
        unsynced.note_folder(str(folder.parent))
    for path in empty_files:
        with os_errors("remove an empty queue file", path):
            Path(path).unlink()


def _whole_batch_units(config: StoreConfig) -> int:
    units = -(-config.mapper_file_size_batch_consume_queue // BATCH_UNIT.size)
    return units * BATCH_UNIT.size
