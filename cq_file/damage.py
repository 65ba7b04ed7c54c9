"""Finds queues that lack units, or may lack some, from their files while a store is opened.

A clean stop of cqstore saves the extent of every queue: anything less is damage. Without saved
ends, a missing file between two others is damage, too; a missing first or last file looks like
units that have expired or were not written yet. But then the queue begins or ends exactly at the
start or end of a file, which is rare: such queues are *suspect*, and the log decides.
"""

from collections.abc import Iterable

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.known_ends import KnownQueue
from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_file.recovery import NO_PHY
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.queue.facts import QueueDamage
from cqstore.store.queue.units import BlockStop, QueueKey

_LOG = StoreLogger(__name__)
_UNIT = FILE_UNIT.size
_BLOCK_UNITS = 8192
_MISFIT = "a queue file has the wrong size or an invalid name"


class DamagedQueues:
    """Damaged and suspect queues of one store. Only the writing thread changes them."""

    def __init__(self) -> None:
        self.found: dict[QueueKey, QueueDamage] = {}
        self.held_back: set[QueueKey] = set()
        """Queues that accept no units until they are rebuilt."""
        self.replay_from = 0
        """Phy offset at which the current replay began; 0: none, or one of the whole log."""

    def note(self, damage: QueueDamage) -> None:
        """Register the damage of a queue; a damaged queue gets no units until it is rebuilt."""
        self.found[damage.queue] = damage
        if not damage.is_suspect:
            _LOG.warning("%r: %s", damage.path, damage.problem)
            self.held_back.add(damage.queue)

    def clear_suspects(self) -> None:
        """Forget suspect queues, and stop holding back units."""
        self.found = {key: each for key, each in self.found.items() if not each.is_suspect}
        self.held_back.clear()

    def forget(self, keys: Iterable[QueueKey]) -> None:
        """Forget queues that were removed."""
        for key in keys:
            self.found.pop(key, None)
            self.held_back.discard(key)

    def shown_by_replay(
        self, key: QueueKey, queue: FileConsumeQueue, phy_offset: int, minimum: int
    ) -> bool:
        """Return whether a unit after the end shows that units are lost; if so, register it.

        The result is False if all existing units have expired: those between may have, too.
        ``minimum`` is the log's minimum.
        """
        begins_there = not self.replay_from or self.replay_from <= minimum
        if begins_there or phy_offset <= queue.last_phy:
            return False
        if 0 <= queue.last_phy < minimum:
            return False
        self.note(QueueDamage(key, "units before the end of the log are missing", queue.folder))
        return True


def damage_since(left: KnownQueue, queue: FileConsumeQueue, misfit: str | None) -> str | None:
    """Return what a queue has lost since the last clean stop, or ``None``."""
    if misfit is not None:
        return _MISFIT
    if not {*queue.starts} >= {*left.starts}:
        return "queue files that existed at the last clean stop are missing"
    fewer = queue.max_offset < left.max_offset or queue.first_offset > left.first_offset
    if fewer or _has_hole(queue):
        return "units that existed at the last clean stop are missing"
    return None


def _has_hole(queue: FileConsumeQueue) -> bool:
    offset, stop = queue.first_offset, BlockStop.LIMIT
    while stop is BlockStop.LIMIT:
        block = queue.read_block(offset, _BLOCK_UNITS)
        offset, stop = offset + block.count, block.stop
    return stop is BlockStop.HOLE


def damage_of(
    key: QueueKey, queue: FileConsumeQueue, misfit: str | None, min_phy_offset: int
) -> QueueDamage | None:
    """Return the damage of a queue that was listed and recovered, or ``None``."""
    size, low = queue.access.mapped_file_size, max(min_phy_offset, 0)
    if misfit is not None:
        return QueueDamage(key, _MISFIT, misfit)
    for before, behind in zip(queue.starts, queue.starts[1:], strict=False):
        if behind != before + size:
            return QueueDamage(
                key, "a queue file between two others is missing", queue.path(behind)
            )
    if queue.starts and _may_lack_its_first_file(queue, low):
        return QueueDamage(key, "the first queue file is missing", queue.folder, suspect_from=low)
    if queue.max_offset * _UNIT == queue.end:
        begin = max(queue.end_phy, low)
        return QueueDamage(key, "the last queue file is missing", queue.folder, suspect_from=begin)
    return None


def _may_lack_its_first_file(queue: FileConsumeQueue, min_phy_offset: int) -> bool:
    """Return whether units may be missing that have not expired.

    A queue with pre-blanks began at its first unit. A leading file is removed only when all of it
    has expired: if an existing unit has expired, all earlier ones have, too.
    """
    first = queue.first_offset
    if queue.starts[0] == 0 or first * _UNIT != queue.starts[0] or queue.last_phy == NO_PHY:
        return False
    unit = queue.unit_at(first)
    return unit is None or unit[0] > min_phy_offset
