"""The compiled way of units that go to the ends of their queues, see ``store/core``."""

from collections.abc import Collection
from typing import Protocol

from cq_file.consume_queue import FileConsumeQueue
from cq_file.named_queue import QueueTable
from cq_file.queue_files import FileAccess
from store.core import CORE, LONG_WAY
from store.files import Descriptor
from store.queue.units import MOST_UNITS, QueueKey, UnitBatch


class FileAppends(Protocol):
    """Appends units to the simple queues of one store. One thread at a time.

    Plain is a queue whose units follow its last one in a single run and fit the file in which it
    ends, and that file is open.
    """

    def append(self, batch: UnitBatch, held_back: Collection[QueueKey], /) -> bytearray:
        """Write all units of each plain queue; return which queues are left, a byte each.

        A queue is left untouched, but for bytes behind its end where the system refused a write.
        """


def plain_appends(access: FileAccess, table: QueueTable) -> FileAppends | None:
    """Return the core's way, ``None`` where it does not run."""
    if LONG_WAY:
        return None
    made: FileAppends = CORE.FileAppends(
        topics=table.simple,
        files=access.cache.entries,
        used=access.cache.entries.move_to_end,
        note=access.unsynced.note_files,
        classes=(FileConsumeQueue, Descriptor),
        file_size=access.mapped_file_size,
        most_offset=MOST_UNITS,
    )
    return made
