"""LogMessage: a message read from an embedded log, with its own copy of the bytes."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NoReturn, Self

from cqstore.store.errors import StoreStateError
from cqstore.store.record.message import MessageProperty
from cqstore.store.service.reading.topic_reader import TopicMessage


@dataclass(frozen=True, slots=True, eq=False)
class LogMessage:
    """One message; it stays valid after the log is closed."""

    topic: str
    queue_id: int
    queue_offset: int
    store_timestamp: int
    """ms since the epoch."""
    body: bytes
    properties: dict[str, str]
    reconsume_times: int
    """Number of times that a group has sent it back, see ``EmbeddedLog.send_back``."""

    @property
    def origin_topic(self) -> str:
        """Return the topic that the message was first put to, also if it was sent back."""
        return self.properties.get(MessageProperty.RETRY_TOPIC, self.topic)

    @property
    def key(self) -> str | None:
        """Return the key that the message was put with, if it has one."""
        return self.properties.get(MessageProperty.KEYS)

    @property
    def tags(self) -> str | None:
        """Return the tag that the message was put with, if it has one."""
        return self.properties.get(MessageProperty.TAGS)

    @property
    def stored_at(self) -> datetime:
        """Return when the message was stored, in UTC."""
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)


@dataclass(frozen=True, slots=True, eq=False)
class TailMessage(LogMessage):
    """A message read by a group's tail, which can be committed, as can its copies.

    A pickled message cannot be committed, because its log may be in another process.
    """

    group: str
    on_commit: Callable[[str, str, int, int], object] = field(repr=False)

    def __copy__(self) -> Self:
        return replace(self)

    def __deepcopy__(self, _: object) -> Self:
        return replace(self, properties=dict(self.properties))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (
            self.topic, self.queue_id, self.queue_offset, self.store_timestamp, self.body,
            self.properties, self.reconsume_times, self.group, _refuse_commit,
        )  # fmt: skip

    def commit(self) -> None:
        """Set the group's offset to the next message, if it is lower. In memory, see ``Tail``.

        Raises:
            StoreClosedError: the log is closed.
            StoreStateError: the message was pickled.
        """
        self.on_commit(self.group, self.topic, self.queue_id, self.queue_offset + 1)


def _refuse_commit(group: str, topic: str, queue_id: int, offset: int) -> NoReturn:
    """Refuse to commit a message that was pickled.

    Raises:
        StoreStateError: always.
    """
    raise StoreStateError(
        f"cannot commit message {offset - 1} of queue {queue_id} of topic {topic!r}: it was"
        f" pickled. Commit it for group {group!r} in the process that reads its tail"
    )


def log_message(topic: str, found: TopicMessage) -> LogMessage:
    """Return a copy of a message that was read.

    Raises:
        CorruptionError: the body cannot be decompressed.
    """
    queue_id, queue_offset, message = found
    return LogMessage(
        topic, queue_id, queue_offset, message.store_timestamp, bytes(message.body),
        dict(message.properties), message.tail.reconsume_times,
    )  # fmt: skip
