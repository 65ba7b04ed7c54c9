"""RecordUnits: the units of a record of the log, in its own queue and in light queues.

Dispatch, rebuilds and the migration use it. Compiled code has the rule of ordinary records a second
time, see decision 69.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``, ``CommitLogDispatcherBuildConsumeQueue``,
``MultiDispatchUtils``.
"""

from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple

from cqstore.store.errors import IllegalMessageError
from cqstore.store.java_numbers import parse_int
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.queue.facts import QueueType
from cqstore.store.record.message import (
    LMQ_PREFIX,
    MAX_BATCH_SIZE,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_PREFIX,
    SysFlag,
    is_queued,
)
from cqstore.store.record.properties import DispatchProperties, dispatch_properties
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET
from cqstore.store.record.scan import ScannedRecord
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.settings.config import StoreConfig

_DIGITS = len(str(MAX_QUEUE_OFFSET))
_INNER = int(SysFlag.INNER_BATCH)


class Unit(NamedTuple):
    """The arguments of ``UnitBatch.add``."""

    key: tuple[str, int]
    queue_offset: int
    phy_offset: int
    size: int
    tags_code: int
    store_timestamp: int


AddUnit = Callable[[tuple[str, int], int, int, int, int, int], None]
"""``UnitBatch.add``, or a function that checks its arguments first."""


class RecordUnits:
    """Derives units under one configuration. Any thread may use it."""

    def __init__(
        self,
        config: StoreConfig,
        deleted: DeletedTopics,
        queue_type: Callable[[str], QueueType],
        *,
        check_topic: Callable[[str], None],
        lmq_needs_multi_dispatch: bool,
        takes_batches: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """The other functions and flags are those of the backend for the units."""
        self.delays = DelayLevels(config.message_delay_level)
        self.deleted = deleted
        self._queue_type = queue_type
        self._check_topic = check_topic
        self._takes_batches = takes_batches
        self._replays_lmq = config.replays_lmq and not (
            lmq_needs_multi_dispatch
            and not config.enable_multi_dispatch
            and "enable_multi_dispatch" in config.model_fields_set
        )

    def add(self, add: AddUnit, record: ScannedRecord, properties: DispatchProperties) -> None:
        """Call ``add`` for each unit of one record: in its own queue and in its light queues.

        ``properties`` are the record's.
        """
        phy_offset, size, topic, queue_id, queue_offset, sys_flag, timestamp, _ = record
        if not is_queued(sys_flag):
            return
        tags_code = self.tags_code(topic, timestamp, properties)
        if not self.deleted.has_record(topic, phy_offset):
            base = properties.inner_base
            if base is not None and self.batch_size(topic, sys_flag, properties):
                add((topic, queue_id), int(base), phy_offset, size, tags_code, timestamp)
            elif self._queue_type(topic) is not QueueType.BATCH:
                add((topic, queue_id), queue_offset, phy_offset, size, tags_code, timestamp)
        self.add_light(add, topic, phy_offset, size, tags_code, timestamp, properties)

    def batch_size(self, topic: str, sys_flag: int, properties: DispatchProperties) -> int:
        """Return the number of messages of a record of a batch queue; 0: of another queue.

        A record without valid ``INNER_BASE`` and ``INNER_NUM`` has no unit in a batch queue.
        """
        base, count = properties.inner_base, properties.inner_num
        if base is None or count is None or not sys_flag & _INNER or not is_queued(sys_flag):
            return 0
        if not (_is_queue_offset(base) and self._takes_batches(topic)):
            return 0
        return batch_size_of(count) or 0

    def tags_code(self, topic: str, timestamp: int, properties: DispatchProperties) -> int:
        """Return the tags code of a record: the hash of its tags, or its due time."""
        if topic == SCHEDULE_TOPIC and properties.delay is not None:
            return self.delays.tags_code(properties.delay, timestamp, properties.tags_code)
        return properties.tags_code

    def add_light(
        self,
        add: AddUnit,
        topic: str,
        phy_offset: int,
        size: int,
        tags_code: int,
        timestamp: int,
        properties: DispatchProperties,
    ) -> None:
        """Call ``add`` for each unit of a queued record in light queues."""
        if properties.multi_dispatch and properties.multi_queue_offset and self._replays_lmq:
            for name, offset in light_queues(topic, properties):
                if self._can_hold(name) and not self.deleted.has_record(name, phy_offset):
                    add((name, 0), offset, phy_offset, size, tags_code, timestamp)

    def of(self, records: Iterable[ScannedRecord], topics: Container[str]) -> Iterator[Unit]:
        """Yield the units of ``records`` in queues of ``topics``, including light queues."""
        found: list[Unit] = []

        def add(key: tuple[str, int], *unit: int) -> None:
            if key[0] in topics:
                found.append(Unit(key, *unit))

        for record in records:
            properties = dispatch_properties(record.properties)
            if record.topic in topics or properties.multi_dispatch:
                self.add(add, record, properties)
                yield from found
                found.clear()

    def _can_hold(self, light_queue: str) -> bool:
        """Return whether the backend supports this light queue.

        RocketMQ skips a name with a path separator.
        """
        try:
            self._check_topic(light_queue)
        except IllegalMessageError:
            return False
        return True


def batch_size_of(text: str) -> int | None:
    """Return the number in ``INNER_NUM``; ``None``: no batch queue can have a unit with it."""
    number = parse_int(text)
    return number if number is not None and 1 <= number <= MAX_BATCH_SIZE else None


def allows_light_queues(topic: str) -> bool:
    """Return whether messages of ``topic`` may go to light queues."""
    return topic != SCHEDULE_TOPIC and not topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX))


def light_queues(topic: str, properties: DispatchProperties) -> list[tuple[str, int]]:
    """Return the light queues of a record with its offset in each.

    As in RocketMQ nothing is dispatched if the numbers of names and offsets differ. A name that is
    not a light queue, or an invalid offset, is skipped; RocketMQ fails on it.
    """
    if not allows_light_queues(topic):
        return []
    names = (properties.multi_dispatch or "").split(",")
    offsets = (properties.multi_queue_offset or "").split(",")
    if len(names) != len(offsets):
        return []
    places = {
        name: int(offset)
        for name, offset in zip(names, offsets, strict=True)
        if name.startswith(LMQ_PREFIX) and _is_queue_offset(offset)
    }
    return list(places.items())  # a duplicate name has one unit


def _is_queue_offset(text: str) -> bool:
    """Return whether ``text`` is a number without a sign that is a valid queue offset."""
    digits = text.isascii() and text.isdecimal() and len(text) <= _DIGITS
    return digits and int(text) < MAX_QUEUE_OFFSET
