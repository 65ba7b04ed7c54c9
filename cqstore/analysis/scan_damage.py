"""Damage found by a scan: it is raised, or reported and skipped."""

from cqstore.analysis.scan_request import OnScanDamage
from cqstore.store.errors import CorruptionError, QueueGapError
from cqstore.store.record.decoder import check_record, refuse_filler
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.topic_reader import TopicDamage

IN_NO_QUEUE = -1
"""Queue id and offset of damage in undispatched records, whose queue is unknown."""


class ScanDamage:
    """Receiver of the damage found in ``store``."""

    def __init__(self, store: MessageStore, on_damage: OnScanDamage | None) -> None:
        self._store, self._on_damage = store, on_damage

    def report(self, topic: str, damage: TopicDamage, fault: CorruptionError | None = None) -> None:
        """Report units of ``topic`` that are skipped; ``fault`` is the error, if known.

        Raises:
            CorruptionError: there is no ``on_damage``; has file, phy offset, expected and found.
        """
        if self._on_damage is not None:
            self._on_damage(topic, damage)
            return
        raise self._placed(fault or self._found(topic, damage), topic, damage)

    def _found(self, topic: str, damage: TopicDamage) -> CorruptionError:
        """Return the error, found by reading the unit and its record again."""
        first, last = damage.queue_offset, damage.queue_offset + damage.units - 1
        unit = next(
            components_of(self._store).queues.queue(topic, damage.queue_id).iterate(first), None
        )
        if unit is None or unit.queue_offset > first:
            return QueueGapError(
                damage.reason, path=self._store.root,
                expected=f"units {first} to {last}", got="none",
            )  # fmt: skip
        try:
            record = components_of(self._store).log.view(unit.phy_offset, unit.size)
            refuse_filler(check_record(record, unit.phy_offset, check_crc=True, property_crc=False))
        except CorruptionError as exc:
            exc.phy_offset = unit.phy_offset
            return exc
        return CorruptionError(damage.reason, phy_offset=unit.phy_offset)

    def _placed(self, fault: CorruptionError, topic: str, damage: TopicDamage) -> CorruptionError:
        """Return ``fault`` with the file and the position in the queue."""
        file = (
            None
            if fault.phy_offset is None
            else components_of(self._store).log.files.find(fault.phy_offset)
        )
        where = f"{topic}, queue {damage.queue_id}, offset {damage.queue_offset}"
        if damage.queue_id == IN_NO_QUEUE:
            where = f"{topic}, not dispatched yet"
        placed = type(fault)(
            f"{where}: {fault.reason}", path=fault.path or (None if file is None else file.path),
            phy_offset=fault.phy_offset, position=fault.position, expected=fault.expected,
            got=fault.got,
        )  # fmt: skip
        placed.__cause__ = fault
        return placed
