"""Encoded: well-formed messages of one put, encoded except for their positions.

Compiled code encodes, see ``_encoded.EncodedMessages``. For a message that it declines, Python
raises the error, or converts it to one that is accepted.
"""

from operator import index
from typing import Protocol

from cqstore.store.log.log_map import LogMap
from cqstore.store.record.encoding_rules import EncodingRules, LearntTopic
from cqstore.store.record.message import SCHEDULE_TOPIC, Host, Message
from cqstore.store.record.properties import delay_level
from cqstore.store.service.results import PutMessageResult


class Encoded(Protocol):
    """Messages of one put, see the compiled class. One thread."""

    def __len__(self) -> int:
        """Return the number of messages."""

    @property
    def total_bytes(self) -> int:
        """Return the size of all records to append, in bytes."""

    @property
    def next_bytes(self) -> int:
        """Return the size of the next record to append, in bytes; 0: all are appended."""

    def add(self, message: Message, learnt: LearntTopic, store_host: Host | None = None) -> bool:
        """Add a message if it is well-formed; return whether it is."""

    def skip(self, count: int) -> None:
        """Skip the next ``count`` messages."""

    def sum(self) -> None:
        """Compute the checksums of the bodies that were added since the last call."""

    def unassigned(self) -> list[tuple[str, int]]:
        """Return the queues whose next offsets are not cached."""

    def append(self, target: LogMap | bytearray, results: list[PutMessageResult], /) -> None:
        """Append as many as fit the log's file; ``results`` get their results."""


def add_encoded(records: Encoded, message: Message, rules: EncodingRules) -> None:
    """Add ``message``, a copy of the caller's, to ``records``.

    Raises:
        PropertiesTooLongError, IllegalMessageError: as for ``EncodingRules.check`` and, in the
            schedule topic, for ``delay_level``.
    """
    learnt = rules.learnt(message)
    if learnt[2] == SCHEDULE_TOPIC:
        delay_level(message.properties)  # its unit has the due time
    if not records.add(message, learnt):
        rules.check(message)  # raises the error, if there is one
        if not records.add(_regular(message, rules), learnt, message.store_host):
            raise AssertionError("well-formed for Python, and not for compiled code")


def _regular(message: Message, rules: EncodingRules) -> Message:
    """Return a message with the stored values, without subclasses of numbers and hosts."""
    return Message(
        message.topic, message.body, message.queue_id, rules.stored_properties(message.properties),
        index(message.flag), index(message.sys_flag), index(message.born_timestamp or 0),
        Host(bytes(message.born_host.wire)), Host(bytes(message.store_host.wire)),
        index(message.reconsume_times), index(message.prepared_transaction_offset),
    )  # fmt: skip
