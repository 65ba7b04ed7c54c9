"""Messages of an open store, topic by topic and queue by queue, in batches.

If only positions and store times are requested, they are read from the units, and no record is
read. All other columns need the records. Messages that are not dispatched yet are read from the
log, after the messages in the queues of their topic: see ``TopicFollower``.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from cqstore.analysis.columns import NULL_TIMESTAMP, UNIT_TABLE
from cqstore.analysis.message_columns import MessageColumns
from cqstore.analysis.scan_damage import IN_NO_QUEUE, ScanDamage
from cqstore.analysis.scan_request import ScanRequest
from cqstore.analysis.unit_columns import IN_UNITS, PlaceColumns, rows_of
from cqstore.analysis.unit_rows import UnitPiece, pieces_of
from cqstore.analysis.unit_scan import time_filter
from cqstore.cli.known_queues import require_topic
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import LMQ_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.topic_follower import TopicFollower
from cqstore.store.service.reading.topic_reader import TopicDamage, TopicMessage, read_topic

PULL_MESSAGES = 256
"""Messages that one pull of a queue returns at most."""
_PULL_BYTES = 1 << 20


class MessageScan:
    """Scan of the messages of ``store``, which was opened read-only."""

    def __init__(self, store: MessageStore, request: ScanRequest) -> None:
        self._store, self._request = store, request
        self._damage = ScanDamage(store, request.on_damage)
        self._messages = MessageColumns(request.columns)
        self._places: PlaceColumns | None = None
        if set(request.columns) <= set(IN_UNITS):
            self._places = PlaceColumns(request.columns, UNIT_TABLE, time_filter(request))
        self._reported_faults: set[int | None] = set()
        """Phy offsets of undispatched records whose damage was reported."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all requested messages.

        Raises:
            NoSuchQueueError: a given topic does not exist.
            CorruptionError: the store is damaged, and there is no ``on_damage``.
            StoreError: the store cannot be read.
        """
        unseen = TopicFollower(components_of(self._store)).topics()
        for topic in self._topics(unseen):
            yield from self._topic(
                topic, with_undispatched=topic in unseen or topic.startswith(LMQ_PREFIX)
            )
        yield from self._rest()

    def _topics(self, unseen: set[str]) -> list[str]:
        """Return the topics to read; light queues only if they are named, as in an export."""
        named = self._request.topics
        if named is None:
            known = {*self._store.topics(), *unseen}
            return sorted(name for name in known if not name.startswith(LMQ_PREFIX))
        for topic in named:
            if topic not in unseen:
                require_topic(self._store, topic)
        return [*named]

    def _topic(self, topic: str, *, with_undispatched: bool) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a topic, queue by queue."""
        keys = sorted(
            key for key in self._store.queue_keys(topic) if self._request.takes_queue(key.queue_id)
        )
        places = self._places if self._is_in_units(topic) else None
        for key in keys:
            if places is not None:
                yield from self._queue_places(key, places)
            else:
                yield from self._queue(key)
        if with_undispatched:
            yield from self._undispatched(topic)

    def _is_in_units(self, topic: str) -> bool:
        """Return whether each unit of the topic is one message of the same topic."""
        kind = components_of(self._store).queues.queue_type(topic)
        return kind is not QueueType.BATCH and not topic.startswith(LMQ_PREFIX)

    # ---- out of records

    def _queue(self, key: QueueKey) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a queue, from its records."""
        request = self._request
        found = read_topic(
            self._store, key.topic, *request.times, queue_ids={key.queue_id},
            batch=PULL_MESSAGES, batch_bytes=_PULL_BYTES,
            on_damage=lambda damage: self._damage.report(key.topic, damage),
        )  # fmt: skip
        yield from self._places_before()
        for each in found:
            self._take(key.topic, each)
            if self._messages.is_full:
                yield from self._messages.rest()

    def _undispatched(self, topic: str) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the undispatched messages of a topic."""
        request, follower = self._request, TopicFollower(components_of(self._store))
        yield from self._places_before()
        for each in follower.poll(topic):
            if request.takes_queue(each.queue_id) and request.times.holds(
                each.message.store_timestamp
            ):
                self._take(topic, each)
                if self._messages.is_full:
                    yield from self._messages.rest()
        for fault in follower.passed_over():
            if fault.phy_offset not in self._reported_faults:
                self._reported_faults.add(fault.phy_offset)
                damage = TopicDamage(IN_NO_QUEUE, IN_NO_QUEUE, 1, str(fault))
                self._damage.report(topic, damage, fault)

    def _take(self, topic: str, found: TopicMessage) -> None:
        """Take a message into the columns; one that cannot be read is reported."""
        try:
            self._messages.take(found)
        except CorruptionError as exc:
            damage = TopicDamage(found.queue_id, found.queue_offset, 1, str(exc))
            self._damage.report(topic, damage, exc)

    def _places_before(self) -> Iterator[pa.RecordBatch]:
        """Yield the waiting rows of units, which precede the next rows of records."""
        if self._places is not None:
            yield from self._places.rest()

    def _rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the waiting rows that did not fill a batch."""
        yield from self._messages.rest()
        yield from self._places_before()

    # ---- out of units

    def _queue_places(self, key: QueueKey, places: PlaceColumns) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a queue, from its units only."""
        yield from self._messages.rest()
        at, end = components_of(self._store).queues.queue(*key).ends()
        for piece in pieces_of(self._store, key, at, end, timed=places.is_timed):
            self._report_hole(key, at, int(piece.offsets[0]))
            at = int(piece.offsets[-1]) + 1
            places.take(self._in_log(piece))
            if places.is_full:
                yield from places.rest()
        self._report_hole(key, at, end)

    def _in_log(self, piece: UnitPiece) -> UnitPiece:
        """Return the units whose records are in the log.

        Records below the min phy offset have expired. A unit that points beyond the max phy offset
        is damaged; so is a unit with an invalid record size, if store times are requested.
        """
        log = components_of(self._store).log
        phy = piece.units["phy_offset"].astype(np.int64)
        there = phy >= log.min_phy_offset()
        lost = there & (phy + piece.units["size"] > log.max_phy_offset())
        if piece.stamps is not None:
            lost |= there & (piece.stamps == NULL_TIMESTAMP)
        for offset in piece.offsets[lost].tolist():
            reason = "the record of the unit is not in the log"
            damage = TopicDamage(piece.key.queue_id, offset, 1, reason)
            self._damage.report(piece.key.topic, damage)
        return rows_of(piece, there & ~lost)

    def _report_hole(self, key: QueueKey, first: int, end: int) -> None:
        """Report the units [``first``, ``end``) as missing, if there are any."""
        if first < end:
            damage = TopicDamage(key.queue_id, first, end - first, "missing in the queue")
            self._damage.report(key.topic, damage)
