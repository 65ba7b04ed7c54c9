"""Encoded: well-formed messages of one put, with all but their places.

Compiled code encodes, see ``_encoded.EncodedMessages``. What it does not take, Python says why, or
makes of it what it takes.
"""

from operator import index
from typing import Protocol

from cqstore.store.log.log_map import LogMap
from cqstore.store.record.encoding_rules import EncodingRules, LearntTopic
from cqstore.store.record.message import Host, Message
from cqstore.store.service.results import PutMessageResult


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
        """Return the queues whose next offsets are not cached."""

    def append(self, target: LogMap | bytearray, results: list[PutMessageResult], /) -> None:
        """Append as many as the log's file has room for; ``results`` get theirs."""


def add_encoded(records: Encoded, message: Message, rules: EncodingRules) -> None:
    """Add ``message``, a copy of the caller's, to ``records``.

    Raises:
        PropertiesTooLongError, IllegalMessageError: as ``EncodingRules.check``.
    """
    learnt = rules.learnt(message)
    if not records.add(message, learnt):
        rules.check(message)  # says what is wrong, or that nothing is
        if not records.add(_regular(message, rules), learnt, message.store_host):
            raise AssertionError("well-formed for Python, and not for compiled code")


def _regular(message: Message, rules: EncodingRules) -> Message:
    """Return a message of what is stored, with no number and no host of a class of its own."""
    return Message(
        message.topic, message.body, message.queue_id, rules.stored_properties(message.properties),
        index(message.flag), index(message.sys_flag), index(message.born_timestamp or 0),
        Host(bytes(message.born_host.wire)), Host(bytes(message.store_host.wire)),
        index(message.reconsume_times), index(message.prepared_transaction_offset),
    )  # fmt: skip
