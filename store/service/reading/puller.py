"""Puller: pulls from a queue, with RocketMQ's statuses and next-offset rules.

The same rules on every backend, those of RocketMQ's files: a pull never crosses a multiple of the
queue file's units, and a filter may skip up to ``max_filter_message_size / 20`` units.

Source: RocketMQ ``DefaultMessageStore.getMessage``, ``ExpressionMessageFilter``.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Protocol

from cqstore.store.errors import CorruptionError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue import PulledUnits
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.estimate import fast_filter
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadKind
from cqstore.store.queue.units import BlockStop, CqUnit, UnitBlock
from cqstore.store.record.decoder import StoredMessage, check_record, refuse_filler
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.message import MessageProperty, SysFlag
from cqstore.store.record.record_layout import MAGIC_V1, MIN_RECORD_SIZE, PLACE
from cqstore.store.service.reading import _pull
from cqstore.store.service.results import GetMessageResult, GetMessageStatus
from cqstore.store.service.runtime.meters import GetMeter
from cqstore.store.settings.config import CQ_UNIT_SIZE, StoreConfig

MAX_PULL_BYTES = 128 << 20
_MIN_PULL_BYTES = 100
_ALL = "*"
_INT32 = 1 << 32
_INT31 = 1 << 31
_place = PLACE.unpack_from
_GONE = int(SysFlag.PASSED_OVER)


class TagFilter:
    """A subscription by tags: ``*``, or ``TagA || TagB``.

    The hash in the queue is compared first; a record with a matching hash is read, and its tag is
    compared (RocketMQ leaves that to the client). SQL92 is not supported.
    """

    def __init__(self, expression: str = _ALL) -> None:
        """``expression``: an empty one matches everything, as in RocketMQ.

        Raises:
            TypeError: it is not a text.
        """
        if not isinstance(expression, str):
            raise TypeError(f"a filter must be a string, not {expression!r:.60}")
        self.tags = {tag.strip() for tag in expression.split("||")} - {""}
        self._everything = not self.tags or self.tags == {_ALL}
        self._codes = {java_hash(tag) for tag in self.tags}
        self.fast = fast_filter(None if self._everything else self._codes)

    def may_match(self, tags_code: int | None) -> bool:
        """Return whether a unit's tags code matches; an unknown code does."""
        if self._everything or tags_code is None:
            return True
        return (tags_code + _INT31) % _INT32 - _INT31 in self._codes  # Java's cast to int

    def matches(self, message: StoredMessage) -> bool:
        """Return whether the record's own tag is one of the filter's."""
        if self._everything:
            return True
        return message.properties.get(MessageProperty.TAGS) in self.tags

    @property
    def takes_all(self) -> bool:
        """Return whether the filter accepts every message."""
        return self._everything


class PulledQueue(Protocol):
    """The methods of a queue that a pull calls, see ``ConsumeQueue``."""

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Return its ends and units; called first."""

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Return units after those from ``pull``."""

    def ends(self) -> tuple[int, int]:
        """Return its current ends."""

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Yield units of batch queues."""

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Return the tags code at an extension address."""


class Puller(_pull.Pulls):
    """Pulls from the queues of one store. Any thread."""

    def __init__(self, config: StoreConfig, log: CommitLog, queues: ConsumeQueueStore) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._units_per_file = queues.units_per_file
        self._max_filtered = -(-config.max_filter_message_size // CQ_UNIT_SIZE)
        self.meter = GetMeter()
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._in_memory = memory * config.access_message_in_memory_max_ratio // 100
        self._fallbacks = queues.context.read_fallbacks
        self._fast = None
        if not config.check_crc_on_pull:
            self._fast = self.meter.fast = _pull.FastPull(
                log, self.meter, config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_memory, self._in_memory,
                self._max_filtered, self._units_per_file,
            )  # fmt: skip

    def get_otherwise(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull as ``get`` does, through the queue object."""
        queue = self._queues.queue(topic, queue_id)
        if self._fast is None:
            reason = FallbackReason.LEFT_OUT
        elif tags is None or tags.takes_all:
            found = self._fast.get(queue, offset, max_msgs, max_total_bytes)
            if found is not None:
                return found
            reason = FallbackReason.DECLINED
        else:
            reason = FallbackReason.FILTER
        self._fallbacks.add(ReadKind.PULL, reason)
        return self.get_from(queue, offset, max_msgs, tags, max_total_bytes)

    def get_from(
        self,
        queue: PulledQueue,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull from ``queue``, which replaces a queue of the store; the pull is counted."""
        started = time.perf_counter()
        result = self._get(queue, offset, max_msgs, tags, max_total_bytes)
        self.meter.pulled(started, result)
        return result

    def _get(
        self,
        queue: PulledQueue,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull once, by RocketMQ's rules of status and next offset."""
        scan = max(self._max_filtered, max_msgs)
        scan = min(scan, self._units_per_file - offset % self._units_per_file)
        min_offset, max_offset, block = queue.pull(offset, min(max(max_msgs, 1), scan))
        if max_offset == 0:
            return _empty(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0, min_offset, max_offset)
        if offset < min_offset:
            return _empty(GetMessageStatus.OFFSET_TOO_SMALL, min_offset, min_offset, max_offset)
        if offset == max_offset:
            return _empty(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, min_offset, max_offset)
        if offset > max_offset:
            status = GetMessageStatus.OFFSET_OVERFLOW_BADLY
            return _empty(status, max_offset, min_offset, max_offset)
        scan = min(scan, max_offset - offset)
        limit = max(_MIN_PULL_BYTES, min(max_total_bytes, MAX_PULL_BYTES))
        pull = _Pull(self, offset, max_msgs, limit, tags)
        pull.result.min_offset, pull.result.max_offset = min_offset, max_offset
        if block is not None:
            return self._walk_blocks(pull, queue, block, offset + scan)
        for unit in queue.iterate(offset):
            if unit.queue_offset - offset >= scan or not pull.add_unit(unit):
                break
        self.meter.add_batched(pull.messages - len(pull.result.records))
        return pull.result

    def _walk_blocks(
        self, pull: "_Pull", queue: PulledQueue, block: UnitBlock, end: int
    ) -> GetMessageResult:
        """Read up to ``end`` block by block; the first block may be the whole result."""
        if pull.accepts_all and self._read_first_block(pull, block):
            return pull.result
        offset = block.queue_offset
        resolve = queue.resolve_tags_code if self._config.enable_consume_queue_ext else None
        while True:
            for phy_offset, size, code in block.rows():
                tags_code = resolve(code) if resolve else code
                if not pull.add(offset, phy_offset, size, tags_code, 1):
                    return pull.result
                offset += 1
            if offset >= end:
                return pull.result
            if block.stop is BlockStop.HOLE:
                return self._at_hole(pull.result, queue, offset, block.hole)
            if not block.count:
                return pull.result
            block = queue.read_units(offset, min(_FILTERED_STEP, end - offset))

    def _at_hole(
        self, result: GetMessageResult, queue: PulledQueue, offset: int, hole: range | None
    ) -> GetMessageResult:
        """End a pull before units that are missing, or that have expired since it began."""
        if result.records:
            return result
        minimum, high = queue.ends()
        if offset < minimum:
            return _empty(GetMessageStatus.OFFSET_TOO_SMALL, minimum, minimum, high)
        result.status = GetMessageStatus.OFFSET_FOUND_NULL
        result.hole = hole
        result.next_begin_offset = hole.stop if hole else offset
        return result

    def _read_first_block(self, pull: "_Pull", block: UnitBlock) -> bool:
        """Read the first block of a pull without a filter in one step.

        Does what ``_Pull.add`` does per unit, if all records are in memory, in the log and in
        place; False, without any change, for any other block.
        """
        rows = list(block.rows())
        result, total = pull.result, 0
        if self.checks_crc or not rows or self._log.max_phy_offset() - rows[0][0] > self._in_memory:
            return False
        limit = min(pull.max_bytes, self._config.max_transfer_bytes_on_message_in_memory)
        count = max(self._config.max_transfer_count_on_message_in_memory, 1)
        records: list[memoryview] = []
        rows = rows[: min(count, max(pull.max_msgs, 1))]
        low, run = self._run_of(rows)
        for phy_offset, size, _ in rows:
            if size < MIN_RECORD_SIZE:
                return False
            total += size
            if total > limit and records:
                total -= size
                break
            at = phy_offset - low
            try:
                is_in_run = 0 <= at <= len(run) - size
                record = run[at : at + size] if is_in_run else self._log.view(phy_offset, size)
            except CorruptionError:  # its file has expired meanwhile, or was truncated
                return False
            stored_size, magic, stored_offset, sys_flag = _place(record, 0)
            if (
                stored_size != size
                or magic != MAGIC_V1
                or stored_offset != phy_offset
                or sys_flag & _GONE
            ):
                return False
            records.append(record)
        first = block.queue_offset
        result.records = records
        result.queue_offsets = list(range(first, first + len(records)))
        result.next_begin_offset = first + len(records)
        result.total_bytes = total
        result.status = GetMessageStatus.FOUND
        return True

    def _run_of(self, rows: Sequence[tuple[int, int, int]]) -> tuple[int, memoryview]:
        """Return the start of the records of ``rows``, and their bytes if they are close together.

        If maps are not valid any more, each record takes a system call.
        """
        (low, _, _), (last, size, _) = rows[0], rows[-1]
        if 0 < last + size - low <= _MAX_RUN:
            with suppress(CorruptionError):  # of one record: reported when that record is read
                return low, self._log.view(low, last + size - low)
        return low, memoryview(b"")

    @property
    def checks_crc(self) -> bool:
        """Return whether the CRC of each body is checked."""
        return self._config.check_crc_on_pull

    @property
    def log(self) -> CommitLog:
        """Return the log from which records are read."""
        return self._log

    def transfer_limits(self, phy_offset: int) -> tuple[int, int]:
        """Return the limits of bytes and messages of one pull, by the position of its record."""
        config = self._config
        if self._log.max_phy_offset() - phy_offset <= self._in_memory:
            return (
                config.max_transfer_bytes_on_message_in_memory,
                config.max_transfer_count_on_message_in_memory,
            )
        return (
            config.max_transfer_bytes_on_message_in_disk,
            config.max_transfer_count_on_message_in_disk,
        )


_FILTERED_STEP = 800
_MAX_RUN = 1 << 18
"""Limit of log bytes that are read at once for a pull; messages keep them alive."""


class _Pull:
    """One pull in progress: takes units in order, and adds their records to its result."""

    def __init__(
        self, puller: Puller, offset: int, max_msgs: int, max_bytes: int, tags: TagFilter | None
    ) -> None:
        self._puller = puller
        self._log = puller.log
        self._tags = tags if tags is not None and not tags.takes_all else None
        self.max_msgs = max_msgs
        self.max_bytes = max_bytes
        self.messages = 0
        """Number of messages in the records taken; RocketMQ's limits and counts are of messages."""
        self.result = GetMessageResult(GetMessageStatus.NO_MATCHED_MESSAGE, offset, 0, 0)

    @property
    def accepts_all(self) -> bool:
        """Return whether there is no filter and no unit has been taken yet."""
        return self._tags is None and not self.result.records

    def add_unit(self, unit: CqUnit) -> bool:
        """Offer a unit record; see ``add``."""
        return self.add(
            unit.queue_offset, unit.phy_offset, unit.size, unit.tags_code, unit.batch_num
        )

    def add(
        self, queue_offset: int, phy_offset: int, size: int, tags_code: int | None, messages: int
    ) -> bool:
        """Take or skip one unit; False: the result is complete without it."""
        result = self.result
        if result.records and self._is_full(phy_offset, size, messages):
            return False
        result.next_begin_offset = queue_offset + messages
        if self._tags is not None and not self._tags.may_match(tags_code):
            return True
        try:
            record = self._log.view(phy_offset, size)
            message = check_record(
                record, phy_offset, check_crc=self._puller.checks_crc, property_crc=False
            )
            refuse_filler(message)
        except CorruptionError as exc:
            if phy_offset >= self._log.min_phy_offset():
                result.leave_out(queue_offset, phy_offset, size, exc)
            elif not result.records:  # its file has expired meanwhile
                result.status = GetMessageStatus.MESSAGE_WAS_REMOVING
            return True
        if self._tags is not None and not self._tags.matches(message):
            return True
        result.records.append(record)
        result.queue_offsets.append(queue_offset)
        result.total_bytes += size
        result.status = GetMessageStatus.FOUND
        self.messages += messages
        return True

    def _is_full(self, phy_offset: int, size: int, messages: int) -> bool:
        total = self.result.total_bytes + size
        if self.messages + messages > self.max_msgs or total > self.max_bytes:
            return True
        max_bytes, max_count = self._puller.transfer_limits(phy_offset)
        return total > max_bytes or self.messages >= max_count


def _empty(status: GetMessageStatus, following: int, low: int, high: int) -> GetMessageResult:
    return GetMessageResult(status, following, low, high)
