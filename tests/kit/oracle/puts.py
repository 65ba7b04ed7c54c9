"""Puts of a store by Python: what the core writes, notes and answers is compared with them."""

from collections.abc import Iterable
from typing import Literal

from cqstore.store.log.commit_log import Appended
from cqstore.store.record.encoding_rules import LearntTopic
from cqstore.store.record.message import SCHEDULE_TOPIC, Host, Message, is_queued
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from tests.kit.oracle.encoder import EncodedRecord, MessageEncoder
from tests.kit.oracle.log_records import Target, fitting, write


def put_by_oracle(store: MessageStore) -> None:
    """Let the oracle encode, write and note what is put to ``store`` from here on."""
    components_of(store).putter._fast = OraclePuts(store)


class OraclePuts:
    """As ``FastPut``, but that no message is taken by one call."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._encoder = MessageEncoder(store.config, components_of(store).putter._check_topic)

    def quick(self, message: Message) -> Literal[False]:
        _ = message
        return False

    def one(self, message: Message) -> None:
        _ = message

    def several(self, messages: Iterable[Message]) -> None:
        _ = messages

    def batch(self, batch: Message) -> None:
        _ = batch

    def encoded(self) -> "OracleRecords":
        return OracleRecords(self._store, self._encoder)


class OracleRecords:
    """As ``Encoded``; a message that is not well-formed is refused by the encoder's sentence."""

    def __init__(self, store: MessageStore, encoder: MessageEncoder) -> None:
        self._log, self._pending = components_of(store).log, components_of(store).pending
        self._is_sealed = store.config.enabled_append_prop_crc
        self._encoder = encoder
        self._added: list[tuple[EncodedRecord, Host]] = []
        self._done = 0

    def __len__(self) -> int:
        return len(self._added)

    @property
    def _left(self) -> list[EncodedRecord]:
        return [record for record, _ in self._added[self._done :]]

    @property
    def total_bytes(self) -> int:
        return sum(record.size for record in self._left)

    @property
    def next_bytes(self) -> int:
        return self._added[self._done][0].size if self._done < len(self._added) else 0

    def add(self, message: Message, learnt: LearntTopic, store_host: Host | None = None) -> bool:
        _ = learnt
        self._added.append((self._encoder.encode(message), store_host or message.store_host))
        return True

    def skip(self, count: int) -> None:
        self._done += count

    def sum(self) -> None:
        """Do nothing: each record has its checksum."""

    def unassigned(self) -> list[tuple[str, int]]:
        known = self._pending.offsets.next
        queues = [_queue_of(record) for record in self._left if is_queued(record.sys_flag)]
        return [queue for queue in queues if queue not in known]

    def append(self, target: Target, results: list[PutMessageResult], /) -> None:
        records = self._left[: fitting(self._log, self._left)]
        offsets = [self._take_offset(record) for record in records]
        places = write(self._log, target, records, offsets, is_sealed=self._is_sealed)
        for record, offset, place in zip(records, offsets, places, strict=True):
            self._note(record, offset, place)
            _, host = self._added[self._done]
            results.append(PutMessageResult(PutMessageStatus.PUT_OK, place, offset, host))
            self._done += 1

    def _take_offset(self, record: EncodedRecord) -> int:
        """Return the record's queue offset, and count it; 0 of one that is in no queue."""
        if not is_queued(record.sys_flag):
            return 0
        offset = self._pending.offsets.next[_queue_of(record)]
        self._pending.offsets.advance(_queue_of(record))
        return offset

    def _note(self, record: EncodedRecord, queue_offset: int, place: Appended) -> None:
        """Note the unit of the record's own queue, and its keys."""
        pending, properties = self._pending, record.dispatch
        if is_queued(record.sys_flag):
            code = properties.tags_code
            if record.topic == SCHEDULE_TOPIC and properties.delay is not None:
                code = pending.delays.tags_code(properties.delay, place.store_timestamp, code)
            pending.units.add(
                _queue_of(record), queue_offset, place.phy_offset, place.size, code,
                place.store_timestamp,
            )  # fmt: skip
        if pending.record_keys.wanted:
            pending.record_keys.add(
                pending.keys, record.topic, record.sys_flag, properties, place.phy_offset,
                place.store_timestamp,
            )  # fmt: skip
        pending.units.end_phy_offset = place.phy_offset + place.size
        pending.last = place


def _queue_of(record: EncodedRecord) -> tuple[str, int]:
    return record.topic, record.queue_id
