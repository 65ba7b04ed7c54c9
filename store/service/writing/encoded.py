"""Encoded: well-formed messages of one put, with all but their places.

Compiled code encodes, see ``_encoded.EncodedMessages``. What it does not take, Python says why, or
makes of it what it takes.
"""

from collections.abc import Sequence
from operator import index
from typing import Protocol

from store.log.commit_log import Appended
from store.log.log_map import LogMap
from store.record.encoder import EncodedRecord, LearntTopic, MessageEncoder
from store.record.message import Host, Message
from store.service.results import PutMessageResult, PutMessageStatus

_OK = PutMessageStatus.PUT_OK


class Encoded(Protocol):
    """Messages of one put, see the core. One thread."""

    def __len__(self) -> int:
        """Return how many there are."""

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all records that are to be appended."""

    @property
    def next_bytes(self) -> int:
        """Return the bytes of the next record that is to be appended; 0: all were."""

    def add(self, message: Message, learnt: LearntTopic, store_host: Host | None = None) -> bool:
        """Add a message if it is well-formed; return whether it is."""

    def skip(self, count: int) -> None:
        """Leave out the next so many."""

    def sum(self) -> None:
        """Find the checksums of the bodies that were added since."""

    def unassigned(self) -> list[tuple[str, int]]:
        """Return the queues whose next offsets are not at hand."""

    def append(self, target: LogMap | bytearray, results: list[PutMessageResult], /) -> None:
        """Append as many as the log's file has room for; ``results`` get theirs."""


def add_encoded(
    records: "Encoded | Interpreted", message: Message, encoder: MessageEncoder
) -> None:
    """Add ``message``, a copy of the caller's, to ``records``.

    Raises:
        PropertiesTooLongError, IllegalMessageError: as ``MessageEncoder.encode``.
    """
    learnt = encoder.learnt(message)
    if not records.add(message, learnt):
        encoder.encode(message)  # says what is wrong, or that nothing is
        if not records.add(_of_plain_types(message), learnt, message.store_host):
            raise AssertionError("well-formed for Python, and not for compiled code")


def _of_plain_types(message: Message) -> Message:
    """Return a message whose numbers and hosts are of no class of their own."""
    return Message(
        message.topic, message.body, message.queue_id, message.properties,
        index(message.flag), index(message.sys_flag), index(message.born_timestamp or 0),
        Host(bytes(message.born_host.wire)), Host(bytes(message.store_host.wire)),
        index(message.reconsume_times), index(message.prepared_transaction_offset),
    )  # fmt: skip


class Interpreted:
    """As the core's, in Python: what is written is compared with it."""

    def __init__(self, encoder: MessageEncoder) -> None:
        self._encoder = encoder
        self._hosts: list[Host] = []
        self.left: list[EncodedRecord] = []
        """What is to be appended."""

    def __len__(self) -> int:
        return len(self.left)

    def add(self, message: Message, _: LearntTopic, store_host: Host | None = None) -> bool:
        """Add a message, or say why not."""
        self.left.append(self._encoder.encode(message))
        self._hosts.append(store_host or message.store_host)
        return True

    @property
    def next_bytes(self) -> int:
        """Return the bytes of the next record that is to be appended; 0: all were."""
        return self.left[0].size if self.left else 0

    def skip(self, count: int) -> None:
        """Leave out the next so many."""
        del self.left[:count], self._hosts[:count]

    def results(
        self, queue_offsets: Sequence[int], appended: Sequence[Appended]
    ) -> list[PutMessageResult]:
        """Return the results of those that were appended; they are not left any more."""
        made = [
            PutMessageResult(_OK, done, queue_offset, host)
            for done, queue_offset, host in zip(appended, queue_offsets, self._hosts, strict=False)
        ]
        self.skip(len(made))
        return made
