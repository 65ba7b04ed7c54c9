"""The fast paths of simple queues, ``None`` where all calls take the slow ones."""

from cq_file import _append, _units
from cq_file.named_queue import QueueTable
from cq_file.queue_files import FileAccess
from store.core import SLOW_PATH_ONLY
from store.queue.context import LogView
from store.queue.units import MAX_UNITS


def plain_appends(access: FileAccess, table: QueueTable) -> _append.FileAppends | None:
    """Return what writes units at the ends of their queues."""
    if SLOW_PATH_ONLY:
        return None
    return _append.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        note=access.unsynced.note_files,
        file_size=access.mapped_file_size,
        most_offset=MAX_UNITS,
    )


def plain_units(access: FileAccess, log: LogView) -> _units.FileUnits | None:
    """Return what reads units, and searches them by time."""
    if SLOW_PATH_ONLY:
        return None
    return _units.FileUnits(log, access.cache, access.mapped_file_size, most_offset=MAX_UNITS)
