"""Mending single queues during an opening: lost units are rebuilt from the log.

The backend reports which queues are damaged or suspect; the log shows whether a suspect one lacks
units. The log is read once to check that it is sound and which records it has of them, and once
more to build them, whatever their number; it is not read if nothing is damaged or suspect.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueDamage, QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.recovering.queue_rebuild import QueueRebuild

_LOG = StoreLogger(__name__)


@dataclass(frozen=True, slots=True)
class MendReport:
    """The result of mending damaged queues."""

    mended: Sequence[QueueKey]
    left: Sequence[QueueDamage]
    """Queues that could not be rebuilt: reading returns holes for missing units."""


@dataclass(slots=True)
class _Incarnation:
    """The records of a queue in the log since the queue last began."""

    first: int
    last: int


class QueueMend:
    """Mends the queues of one store during its opening."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        units: RecordUnits,
        rebuild: QueueRebuild,
        rules: ScanRules,
    ) -> None:
        self._log = log
        self._queues = queues
        self._units = units
        self._rebuild = rebuild
        self._rules = rules

    def run(self, expired_ends: Callable[[], Mapping[tuple[str, int], int]]) -> MendReport:
        """Mend the queues that the backend reports; ``expired_ends`` returns expired queues' ends.

        Raises:
            RefusedStoreError: the log is damaged and does not show the next offset of a damaged
                queue.
            StoreError: a queue could not be written.
        """
        found = {damage.queue: damage for damage in self._queues.damaged_queues()}
        if not found:
            return MendReport([], [])
        mendable = {
            key: damage
            for key, damage in found.items()
            if self._queues.queue_type(key.topic) is not QueueType.BATCH
        }
        try:
            incarnations = self._incarnations(mendable)
        except CorruptionError as exc:
            self._refuse_unknown_ends(found.values(), exc)
            incarnations, mendable = {}, {}
        damaged = [
            key for key, damage in mendable.items() if self._is_damaged(damage, incarnations)
        ]
        expired = expired_ends() if damaged else {}
        ends = {
            key: max(
                expired.get(key, 0),
                found[key].next_offset,
                self._queues.queue(*key).max_offset(),
            )
            for key in damaged
        }
        if damaged:
            _LOG.warning("rebuilding %d damaged queues from the log", len(damaged))
            self._rebuild.build(
                [
                    {"topic": key.topic, "queue": key.queue_id, "ends": [[key.queue_id, ends[key]]]}
                    for key in damaged
                ]
            )
        self._queues.damage_is_settled()
        left = [each for key, each in found.items() if key not in damaged and not each.is_suspect]
        return MendReport(damaged, left)

    def _incarnations(
        self, damages: dict[QueueKey, QueueDamage]
    ) -> dict[tuple[str, int], _Incarnation]:
        """Return the log's records of the queues; of suspect ones only those that may be missing.

        Raises:
            CorruptionError: the log is damaged.
        """
        incarnations: dict[tuple[str, int], _Incarnation] = {}
        if not damages:
            return incarnations
        starts = {tuple(key): damage.suspect_from or 0 for key, damage in damages.items()}
        records = self._log.scan_kept(self._rules, min(starts.values()))
        for unit in self._units.of(records, {topic for topic, _ in damages}):
            start = starts.get(unit.key)
            if start is None or unit.phy_offset < start:
                continue
            incarnation = incarnations.get(unit.key)
            if incarnation is None or unit.queue_offset <= incarnation.last:
                incarnations[unit.key] = _Incarnation(unit.queue_offset, unit.queue_offset)
            else:
                incarnation.last = unit.queue_offset
        return incarnations

    def _is_damaged(
        self, damage: QueueDamage, incarnations: dict[tuple[str, int], _Incarnation]
    ) -> bool:
        """Return whether to rebuild a queue: it lacks records, and the log has some."""
        incarnation = incarnations.get(damage.queue)
        low, high = self._queues.queue(*damage.queue).ends()
        if damage.is_suspect:
            return incarnation is not None and (incarnation.last >= high or incarnation.first < low)
        # With these settings maybe no record leads to it any more: then its units must be kept.
        return incarnation is not None or low == high

    def _refuse_unknown_ends(self, damages: Iterable[QueueDamage], fault: CorruptionError) -> None:
        """Refuse if an offset could be assigned twice."""
        for damage in damages:
            if not damage.next_offset and not damage.is_suspect:
                topic, queue_id = damage.queue
                raise RefusedStoreError(
                    f"cannot rebuild the damaged queue {queue_id} of topic {topic!r}"
                    f" ({damage.problem}): the log is damaged too: {fault}"
                ) from fault
