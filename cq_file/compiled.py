"""The compiled ways with units of simple queues; what meets something odd is left to Python."""

from cq_file import _native
from cq_file.consume_queue import FileConsumeQueue
from cq_file.named_queue import QueueTable
from cq_file.queue_files import FileAccess
from store.files import Descriptor
from store.queue.context import LogView
from store.queue.units import MAX_UNITS


def plain_appends(access: FileAccess, table: QueueTable) -> "_native.FileAppends":
    """Return what writes units at the ends of their queues."""
    return _native.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        used=access.cache.entries.move_to_end,
        note=access.unsynced.note_files,
        classes=(FileConsumeQueue, Descriptor),
        file_size=access.mapped_file_size,
        most_offset=MAX_UNITS,
    )


def plain_units(access: FileAccess, log: LogView) -> "_native.FileUnits":
    """Return what reads units, and searches them by time."""
    return _native.FileUnits(
        log, access.cache, access.mapped_file_size,
        classes=(QueueTable, FileConsumeQueue, Descriptor), most_offset=MAX_UNITS,
    )  # fmt: skip
