"""ExtFiles: the extension units of one queue, found by the address in a unit's tags code.

Owned on disk: ``consumequeue_ext/TOPIC/QUEUEID/N``. Extension files are read, never written; a unit
written by cqstore contains its tags code itself, which every reader accepts.

Source: RocketMQ ``ConsumeQueueExt``.
"""

from cqstore.cq_file.layout import EXT_ADDRESS_BASE, EXT_UNIT_HEAD, ExtUnitHead
from cqstore.cq_file.queue_files import QueueFiles
from cqstore.store.queue.units import EXT_ADDRESS_MAX


def is_ext_address(tags_code: int) -> bool:
    """Distinguish an address of an extension unit from a tags code or deliver time."""
    return tags_code <= EXT_ADDRESS_MAX


class ExtFiles(QueueFiles):
    """The extension files of one queue. Any thread may read."""

    __slots__ = ()

    def resolve(self, address: int) -> ExtUnitHead | None:
        """Return the extension unit at ``address``, or ``None`` if there is none.

        Raises:
            StoreIOError: an I/O operation failed.
        """
        return self.stable(self._resolve, address - EXT_ADDRESS_BASE)

    def _resolve(self, logic_offset: int) -> ExtUnitHead | None:
        """Return the head of the extension unit at this offset, or ``None``."""
        start = self.file_at(logic_offset)
        room = 0 if start is None else start + self.access.mapped_file_size - logic_offset
        if room < EXT_UNIT_HEAD.size:
            return None
        head = EXT_UNIT_HEAD.unpack_from(self.read(logic_offset, EXT_UNIT_HEAD.size))
        whole = EXT_UNIT_HEAD.size + head.bit_map_size
        return head if head.bit_map_size >= 0 and head.size == whole <= room else None
