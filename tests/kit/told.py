"""A script of everything that writes, what it was told, and whether a store keeps to that."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import NamedTuple

from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult
from tests.kit.quiet_config import quiet_config

LIGHT = "%LMQ%a"
LOG_FILE = 16_384
CONFIG = quiet_config(
    mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=400, max_hash_slot_num=10,
    max_index_num=24, rocksdb_memory_bytes=16 << 20, enable_lmq=True, enable_multi_dispatch=True,


)  # fmt: skip
"""Small files that roll soon; nothing is flushed but what the script flushes."""


class Stored(NamedTuple):
    """One message that was acknowledged."""

    message: Message
    queue_offset: int
    phy_offset: int


@dataclass(slots=True)
class AcknowledgedWrites:
    """What was acknowledged, and what was asked for without being told that it is done."""

    stored: list[Stored] = field(default_factory=list)
    requested: int = 0
    deleting: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    ends: dict[str, int] = field(default_factory=dict)
    """By topic: behind the last offset that was acknowledged."""
    expired_to: int = 0
    """Where the log begins at most."""

    def copy(self) -> "AcknowledgedWrites":
        """Return what has been told so far, to go on with it apart from this."""
        return deepcopy(self)

    def work(self, store: MessageStore) -> None:
        """Put, list, client batch, light queue, flush, roll, deletion of a topic, expiry."""
        gone = f"gone{self.requested}"
        self._put(store, self._message("early", 40))
        self._put(store, *(self._message("t", 40) for _ in range(3)))
        results = store.put_messages(many := [self._message("t", 200) for _ in range(9)])
        self._take(many, results)
        self._put(store, self._message("t", 50, INNER_MULTI_DISPATCH=LIGHT))
        store.flush()
        batch = [self._message("b", 60) for _ in range(4)]
        self._take(batch, store.put_client_batch(Message("b", encode_client_batch(batch))))
        self._put(store, self._message(gone, 60), self._message(gone, 60))
        self.deleting.add(gone)
        store.delete_topic(gone)
        self.deleted.add(gone)
        self._put(store, *(self._message("t", 3000) for _ in range(7)))
        store.max_offset("t", 0)
        self._put(store, self._message("b", 50, INNER_MULTI_DISPATCH=LIGHT))
        store.flush()
        self.expired_to = store.min_phy_offset() + LOG_FILE
        store.delete_expired_files(self.expired_to)
        self._put(store, self._message("u", 60), self._message("t", 60))

    def check(self, store: MessageStore) -> None:
        """Compare: every message is in its queue at its offset, once, and found by its key."""
        least = store.min_phy_offset()
        assert least <= self.expired_to
        queues = {tuple(key): self._read(store, *key) for key in store.queue_keys()}
        light = queues.get((LIGHT, 0), {})
        for topic in self.deleted:
            assert (topic, 0) not in queues
        for message, queue_offset, phy_offset in self.stored:
            topic = message.topic
            if phy_offset < least or topic in self.deleting:
                continue
            assert queues[topic, 0][queue_offset] == message.body
            assert store.message_by_offset(phy_offset).body == message.body
            hits = store.query_message(topic, message.properties["KEYS"])
            assert [hit.body for hit in hits] == [message.body]
            if "INNER_MULTI_DISPATCH" in message.properties:
                assert list(light.values()).count(message.body) == 1
        assert [finding for finding in store.check() if finding.damage] == []

    @staticmethod
    def _read(store: MessageStore, topic: str, queue_id: int) -> dict[int, bytes]:
        """Return the bodies of a queue by offset; no offset and no body may be there twice."""
        at, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        found: dict[int, bytes] = {}
        while at < end:
            result = store.get_message(topic, queue_id, at, 32)
            assert result.queue_offsets == [*range(at, at + len(result.queue_offsets))]
            assert result.queue_offsets, result.status
            bodies = [message.body for message in result.messages()]
            found |= dict(zip(result.queue_offsets, bodies, strict=True))
            at = result.next_begin_offset
        assert len(set(found.values())) == len(found)
        return found

    def _message(self, topic: str, size: int, **properties: str) -> Message:
        number = self.requested
        self.requested += 1
        properties |= {"KEYS": f"k{number}", "TAGS": "a"}
        return Message(topic, (b"%d " % number).ljust(size, b"x"), 0, properties)

    def _put(self, store: MessageStore, *messages: Message) -> None:
        for message in messages:
            self._take([message], [store.put_message(message)])

    def _take(self, messages: Sequence[Message], results: Sequence[PutMessageResult]) -> None:
        for message, result in zip(messages, results, strict=False):  # one refusal for a batch
            if result.ok:
                assert result.queue_offset >= self.ends.get(message.topic, 0), "given twice"
                self.ends[message.topic] = result.queue_offset + 1
                self.stored.append(Stored(message, result.queue_offset, result.phy_offset))
