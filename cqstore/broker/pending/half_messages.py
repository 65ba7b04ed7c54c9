"""Half messages of transactions and the op messages that decided them.

A half message is undecided until an op message, in the queue of the same id of
``RMQ_SYS_TRANS_OP_HALF_TOPIC``, names its queue offset. The broker's own group has an offset in
both topics: messages below it are committed or rolled back.

Source: RocketMQ ``TransactionalMessageServiceImpl``, ``TransactionalMessageBridge``.
"""

from collections.abc import Iterator, Mapping

from cqstore.broker.metadata.model import Offsets
from cqstore.broker.pending.pending_parts import PendingMessage, PendingPart, PendingSource, Step
from cqstore.store.broker_files.file_names import TOPIC_GROUP_SEPARATOR
from cqstore.store.errors import CorruptionError
from cqstore.store.progress import noop
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import HALF_TOPIC, OP_HALF_TOPIC, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_GROUP = "CID_RMQ_SYS_TRANS"
_REMOVE_TAG, _BETWEEN_OFFSETS = "d", ","
_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"


class HalfMessages:
    """The half messages that a broker checks next, queue by queue."""

    def __init__(self, store: MessageStore, offsets: Offsets, step: Step = noop) -> None:
        """``offsets``: consumer offsets of the metadata; nothing is read yet.

        ``step`` is called for each half message and op message that is read.
        """
        self._store, self._step = store, step
        self._half = offsets.get(f"{HALF_TOPIC}{TOPIC_GROUP_SEPARATOR}{_GROUP}", {})
        self._op = offsets.get(f"{OP_HALF_TOPIC}{TOPIC_GROUP_SEPARATOR}{_GROUP}", {})
        self.faults: list[CorruptionError] = []
        """Op messages without queue offsets; a broker skips them."""

    def parts(self) -> Iterator[PendingPart]:
        """Yield each queue of half messages.

        Raises:
            StoreError: a queue or a record cannot be read.
        """
        for queue_id, begin, high in self._spans():
            part = PendingPart(PendingSource.HALF, queue_id, begin, high)
            for message in self._messages(queue_id, begin, high):
                if message.op_offset is not None:
                    part.decided += 1
                    continue
                part.pending += 1
                stored = message.store_timestamp
                part.oldest = stored if part.oldest is None else min(stored, part.oldest)
            yield part

    def messages(self) -> Iterator[PendingMessage]:
        """Yield each half message from the broker's position on, including decided ones.

        Raises:
            StoreError: a queue or a record cannot be read.
        """
        for queue_id, begin, high in self._spans():
            yield from self._messages(queue_id, begin, high)

    def units(self) -> int:
        """Return the number of records to read, by the ends of the queues."""
        found = 0
        for queue_id, *half in self._spans():
            found += sum(max(high - begin, 0) for begin, high in (half, self._op_span(queue_id)))
        return found

    def _spans(self) -> Iterator[tuple[int, int, int]]:
        for (_, queue_id), low, high in sorted(self._store.queue_spans(HALF_TOPIC)):
            yield queue_id, max(self._half.get(queue_id, low), low), high

    def _messages(self, queue_id: int, begin: int, high: int) -> Iterator[PendingMessage]:
        """Yield the half messages of a queue from ``begin`` on."""
        decided = self._decided(queue_id)
        for offset, message in self._records(HALF_TOPIC, queue_id, begin, high):
            properties = message.properties
            yield PendingMessage(
                PendingSource.HALF, queue_id, offset, message.phy_offset,
                message.store_timestamp, None, properties.get(MessageProperty.REAL_TOPIC),
                properties.get(MessageProperty.UNIQ_KEY), _number(properties),
                decided.get(offset),
            )  # fmt: skip

    def _op_span(self, queue_id: int) -> tuple[int, int]:
        low, high = components_of(self._store).queues.queue(OP_HALF_TOPIC, queue_id).ends()
        return max(self._op.get(queue_id, low), low), high

    def _decided(self, queue_id: int) -> dict[int, int]:
        """Return half message → op message that decided it, both as queue offsets."""
        begin, high = self._op_span(queue_id)
        found: dict[int, int] = {}
        for offset, message in self._records(OP_HALF_TOPIC, queue_id, begin, high):
            if message.properties.get(MessageProperty.TAGS) != _REMOVE_TAG:
                continue
            try:
                text = message.body.decode()
                found |= {int(each): offset for each in text.split(_BETWEEN_OFFSETS) if each}
            except ValueError:
                self.faults.append(_no_offsets(message, offset))
        return found

    def _records(
        self, topic: str, queue_id: int, begin: int, end: int
    ) -> Iterator[tuple[int, StoredMessage]]:
        """Yield queue offset and record of a queue's units in [``begin``, ``end``)."""
        for unit in components_of(self._store).queues.queue(topic, queue_id).iterate(begin):
            if unit.queue_offset >= end:
                return
            self._step(1)
            yield unit.queue_offset, self._store.message_by_offset(unit.phy_offset)


def _no_offsets(message: StoredMessage, offset: int) -> CorruptionError:
    return CorruptionError(
        f"op message {offset} of queue {message.queue_id} has no valid half message offsets",
        phy_offset=message.phy_offset, expected="queue offsets", got=repr(message.body[:40]),
    )  # fmt: skip


def _number(properties: Mapping[str, str]) -> int | None:
    text = properties.get(_CHECK_TIMES, "")
    return int(text) if text.isascii() and text.isdecimal() else None
