"""The compiled ways with units of simple queues. Each has a twin, see ``store.core``."""

from typing import TYPE_CHECKING, Final

from cq_file.consume_queue import FileConsumeQueue
from cq_file.named_queue import QueueTable
from cq_file.queue_files import FileAccess
from store.core import beside
from store.files import Descriptor
from store.queue.context import LogView
from store.queue.units import MOST_UNITS

if TYPE_CHECKING:
    from cq_file import _native

NATIVE: Final = beside("cq_file._native")
"""The compiled module, ``None`` where the twins run."""


def plain_appends(access: FileAccess, table: QueueTable) -> "_native.FileAppends | None":
    """Return what writes units at the ends of their queues."""
    if NATIVE is None:
        return None
    made: _native.FileAppends = NATIVE.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        used=access.cache.entries.move_to_end,
        note=access.unsynced.note_files,
        classes=(FileConsumeQueue, Descriptor),
        file_size=access.mapped_file_size,
        most_offset=MOST_UNITS,
    )
    return made


def plain_units(access: FileAccess, log: LogView) -> "_native.FileUnits | None":
    """Return what reads units, and searches them by time."""
    if NATIVE is None:
        return None
    made: _native.FileUnits = NATIVE.FileUnits(
        log, access.cache, access.mapped_file_size,
        classes=(QueueTable, FileConsumeQueue, Descriptor), most_offset=MOST_UNITS,
    )  # fmt: skip
    return made
