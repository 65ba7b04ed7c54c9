"""Puller: pulls from a queue, with RocketMQ's statuses and next-offset rules.

The same rules on every backend, those of RocketMQ's files: a pull never crosses a multiple of the
queue file's units, and a filter may skip up to ``max_filter_message_size / 20`` units.

Source: RocketMQ ``DefaultMessageStore.getMessage``, ``ExpressionMessageFilter``.
"""

import os
from collections.abc import Iterator
from typing import Protocol

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.consume_queue import PulledUnits
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.estimate import fast_filter
from cqstore.store.queue.read_fallbacks import FallbackReason, ReadKind
from cqstore.store.queue.units import BlockStop, CqUnit, UnitBlock
from cqstore.store.record.decoder import StoredMessage, check_record, refuse_filler
from cqstore.store.record.java_hash import java_hash
from cqstore.store.record.layout import Buffer
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.reading import _pull
from cqstore.store.service.results import GetMessageResult, GetMessageStatus
from cqstore.store.service.runtime.meters import GetCounts
from cqstore.store.settings.config import StoreConfig

MAX_PULL_BYTES = 128 << 20
_ALL = "*"
_INT32 = 1 << 32
_INT31 = 1 << 31


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

    @property
    def expression(self) -> str | None:
        """Return the tags as an expression; ``None`` if the filter accepts every message."""
        return None if self._everything else " || ".join(sorted(self.tags))


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
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        in_memory = memory * config.access_message_in_memory_max_ratio // 100
        super().__init__(config, log, queues, in_memory)
        self._config = config
        self._fallbacks = queues.context.read_fallbacks

    def get_otherwise(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull as ``get`` does, unit by unit, if compiled code found something unusual."""
        self._fallbacks.add(ReadKind.PULL, FallbackReason.DECLINED)
        queue = self.queues.queue(topic, queue_id)
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
        pull = _pull.Pull(self, offset, max_msgs, tags, max_total_bytes)
        minimum, high, block = queue.pull(offset, pull.first)
        if pull.starts(minimum, high):
            if block is not None:
                self._walk_blocks(pull, queue, block)
            else:
                for unit in queue.iterate(offset):
                    if unit.queue_offset >= pull.end or not pull.add(*unit):
                        break
        return pull.finished()

    def _walk_blocks(self, pull: _pull.Pull, queue: PulledQueue, block: UnitBlock) -> None:
        """Offer the units to ``pull`` block by block, until it is complete."""
        offset = block.queue_offset
        resolve = queue.resolve_tags_code if self._config.enable_consume_queue_ext else None
        while True:
            for phy_offset, size, code in block.rows():
                if not pull.add(offset, phy_offset, size, resolve(code) if resolve else code):
                    return
                offset += 1
            count = pull.further(offset)
            if not count:
                return
            if block.stop is BlockStop.HOLE:
                _end_at_hole(pull, queue, offset, block.hole)
                return
            if not block.count:
                return
            block = queue.read_units(offset, count)

    def checked(self, record: Buffer, phy_offset: int) -> StoredMessage:
        """Return the message of a record that compiled code does not accept, after all checks.

        Raises:
            CorruptionError: the record is damaged, or a filler.
        """
        message = check_record(
            record, phy_offset, check_crc=self._config.check_crc_on_pull, property_crc=False
        )
        refuse_filler(message)
        return message

    def counts(self) -> GetCounts:
        """Return the counts of all pulls so far."""
        return GetCounts(self.statuses, self.messages, self.total_bytes)


def _end_at_hole(pull: _pull.Pull, queue: PulledQueue, offset: int, hole: range | None) -> None:
    """End a pull before units that are missing, or that have expired since it began."""
    if pull.result.record_count():
        return
    minimum, high = queue.ends()
    if offset < minimum:
        pull.starts(minimum, high)
        return
    result = pull.result
    result.status = GetMessageStatus.OFFSET_FOUND_NULL
    result.hole = hole
    result.next_begin_offset = hole.stop if hole else offset
