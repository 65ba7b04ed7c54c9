"""A pull in Python, unit by unit: what ``Pulls`` and ``Pull`` have to return.

Source: RocketMQ ``DefaultMessageStore.getMessage``, ``ExpressionMessageFilter``.
"""

import os
from collections.abc import Iterator
from itertools import takewhile

from cqstore.store.errors import CorruptionError
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.units import BlockStop, CqUnit
from cqstore.store.record.decoder import check_record, refuse_filler
from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import HEAD, MAGIC_V1, MAGIC_V2
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import DamagedRecord, GetMessageResult
from cqstore.store.service.results import GetMessageStatus as Status


class OraclePull:
    """One pull of at most ``max_msgs`` messages from a store."""

    def __init__(
        self, store: MessageStore, max_msgs: int, tags: TagFilter | None, max_bytes: int
    ) -> None:
        self._config, self._log = store.config, components_of(store).log
        self._queues = components_of(store).queues
        self._tags = None if tags is None or tags.takes_all else tags
        self._max_msgs, self._max_bytes = max_msgs, max(100, min(max_bytes, 128 << 20))
        self._messages = 0
        self._result = GetMessageResult(Status.NO_MATCHED_MESSAGE, 0, 0, 0)

    def of(self, topic: str, queue_id: int, offset: int) -> GetMessageResult:
        """Return the result."""
        queue, per_file = self._queues.queue(topic, queue_id), self._queues.units_per_file
        low, high = queue.ends()
        if not low <= offset < high:
            return _outside(offset, low, high)
        self._result = GetMessageResult(Status.NO_MATCHED_MESSAGE, offset, low, high)
        scan = max(-(-self._config.max_filter_message_size // 20), self._max_msgs)
        end = min(offset + scan, high, offset - offset % per_file + per_file)
        for unit in self._units(queue, offset, end):
            if isinstance(unit, range):
                self._end_at(unit)
                break
            if self._is_full(unit):
                break
            self._result.next_begin_offset = unit.queue_offset + unit.batch_num
            if self._tags is None or self._tags.may_match(unit.tags_code):
                self._offer(unit)
        return self._result

    def _units(self, queue: ConsumeQueue, offset: int, end: int) -> Iterator[CqUnit | range]:
        """Yield the units before ``end``; the first hole is the last one."""
        if queue.pull(offset, 1).block is None:
            yield from takewhile(lambda unit: unit.queue_offset < end, queue.iterate(offset))
            return
        block = queue.read_units(offset, end - offset)
        for unit in block.units():
            code = unit.tags_code
            if self._config.enable_consume_queue_ext and code is not None:
                code = queue.resolve_tags_code(code)
            yield unit._replace(tags_code=code)
        if block.stop is BlockStop.HOLE and block.hole is not None:
            yield block.hole

    def _end_at(self, hole: range) -> None:
        if not self._result.records:
            self._result.status, self._result.hole = Status.OFFSET_FOUND_NULL, hole
            self._result.next_begin_offset = hole.stop

    def _is_full(self, unit: CqUnit) -> bool:
        config, total = self._config, self._result.total_bytes + unit.size
        if not self._result.records:
            return False
        if self._messages + unit.batch_num > self._max_msgs or total > self._max_bytes:
            return True
        if self._is_in_memory(unit):
            return (
                total > config.max_transfer_bytes_on_message_in_memory
                or self._messages >= config.max_transfer_count_on_message_in_memory
            )
        return (
            total > config.max_transfer_bytes_on_message_in_disk
            or self._messages >= config.max_transfer_count_on_message_in_disk
        )

    def _is_in_memory(self, unit: CqUnit) -> bool:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        near = memory * self._config.access_message_in_memory_max_ratio // 100
        return self._log.max_phy_offset() - unit.phy_offset <= near

    def _offer(self, unit: CqUnit) -> None:
        """Add the record of a unit whose tags code matches, if the record is one."""
        result = self._result
        try:
            record = self._accepted(unit)
        except CorruptionError as exc:
            if not result.records:
                result.status = Status.MESSAGE_WAS_REMOVING
            if unit.phy_offset >= self._log.min_phy_offset():
                damaged = DamagedRecord(unit.queue_offset, unit.phy_offset, unit.size, str(exc))
                result.damaged.append(damaged)
            return
        if record is not None:
            result.records.append(record)
            result.queue_offsets.append(unit.queue_offset)
            result.total_bytes += unit.size
            result.status = Status.FOUND
            self._messages += unit.batch_num

    def _accepted(self, unit: CqUnit) -> memoryview | None:
        """Return the record, ``None`` if it has another tag.

        Raises:
            CorruptionError: it is damaged.
        """
        record = self._log.view(unit.phy_offset, unit.size)
        checks_crc = self._config.check_crc_on_pull
        if self._tags is None and not checks_crc and self._is_in_memory(unit):
            head = HEAD.unpack_from(record)
            place = head.total_size, head.phy_offset, head.sys_flag & SysFlag.PASSED_OVER
            if place == (unit.size, unit.phy_offset, 0) and head.magic_code in {MAGIC_V1, MAGIC_V2}:
                return record
        message = check_record(record, unit.phy_offset, check_crc=checks_crc, property_crc=False)
        refuse_filler(message)
        return record if self._tags is None or self._tags.matches(message) else None


def _outside(offset: int, low: int, high: int) -> GetMessageResult:
    if high == 0:
        return GetMessageResult(Status.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetMessageResult(Status.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetMessageResult(Status.OFFSET_OVERFLOW_ONE, high, low, high)
    return GetMessageResult(Status.OFFSET_OVERFLOW_BADLY, high, low, high)
