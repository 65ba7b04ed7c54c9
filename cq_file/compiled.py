"""The compiled ways with units of simple queues; each has a long way too, see ``store.core``."""

from cq_file import _native
from cq_file.consume_queue import FileConsumeQueue
from cq_file.named_queue import QueueTable
from cq_file.queue_files import FileAccess
from store.core import SLOW_PATH_ONLY
from store.files import Descriptor
from store.queue.context import LogView
from store.queue.units import MAX_UNITS


def plain_appends(access: FileAccess, table: QueueTable) -> "_native.FileAppends | None":
    """Return what writes units at the ends of their queues."""
    if SLOW_PATH_ONLY:
        return None
    return _native.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        used=access.cache.entries.move_to_end,
        note=access.unsynced.note_files,
        classes=(FileConsumeQueue, Descriptor),
        file_size=access.mapped_file_size,
        most_offset=MAX_UNITS,
    )


def plain_units(access: FileAccess, log: LogView) -> "_native.FileUnits | None":
    """Return what reads units, and searches them by time."""
    if SLOW_PATH_ONLY:
        return None
    return _native.FileUnits(
        log, access.cache, access.mapped_file_size,
        classes=(QueueTable, FileConsumeQueue, Descriptor), most_offset=MAX_UNITS,
    )  # fmt: skip
