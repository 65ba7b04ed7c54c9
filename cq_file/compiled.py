"""The compiled fast paths of simple queues; irregular cases take the slow path in Python."""

from cqstore.cq_file import _append, _units
from cqstore.cq_file.named_queue import QueueTable
from cqstore.cq_file.queue_files import FileAccess
from cqstore.store.queue.context import LogView
from cqstore.store.queue.units import MAX_UNITS


def fast_appends(access: FileAccess, table: QueueTable) -> _append.FileAppends:
    """Return the compiled appender of units."""
    return _append.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        note=access.unsynced.note_files,
        file_size=access.mapped_file_size,
        max_units=MAX_UNITS,
    )


def fast_units(access: FileAccess, log: LogView) -> _units.FileUnits:
    """Return the compiled reader of units, which also searches by time."""
    return _units.FileUnits(log, access.cache, access.mapped_file_size, max_units=MAX_UNITS)
