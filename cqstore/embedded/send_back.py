"""Messages that a group could not process: its retry topic, and its dead-letter topic.

Source: RocketMQ ``AbstractSendMessageProcessor.consumerSendMsgBack``, ``MixAll.getRetryTopic``.
"""

from functools import partial

from cqstore.embedded.consumer_offsets import ConsumerOffsets
from cqstore.embedded.log_message import LogMessage
from cqstore.embedded.log_topics import LogTopics
from cqstore.embedded.names import check_group_name, is_topic_name
from cqstore.embedded.put_message import checked_level
from cqstore.store.errors import RefusedStoreError
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import DLQ_PREFIX, RETRY_PREFIX, Message, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.reading.arguments import check_kind, check_numbers

MAX_RECONSUME_TIMES = 16
"""``SubscriptionGroupConfig.retryMaxTimes``."""
QUEUES = 1
"""Number of queues of a new retry or dead-letter topic."""
_FIRST_LEVEL = 3
_OF_RECORD = {MessageProperty.CRC32, MessageProperty.INNER_MULTI_QUEUE_OFFSET}
"""Properties that the store adds to a record."""


class RetryTopics:
    """The retry topics of the groups of one open store. Any thread."""

    def __init__(self, store: MessageStore, topics: LogTopics, offsets: ConsumerOffsets) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets

    @property
    def is_on(self) -> bool:
        """Return whether messages that are sent back are delivered again."""
        return self._store.config.enable_schedule_message_service

    def of(self, group: str) -> str | None:
        """Return the retry topic of ``group``, created if needed; ``None``: it has none.

        Raises:
            StoreError: as for ``LogTopics.create``.
        """
        topic = RETRY_PREFIX + group
        if not self.is_on or not is_topic_name(topic):
            return None
        self._topics.create_unless_known(topic, QUEUES)
        return topic

    def sent_back(
        self, message: LogMessage, group: str, level: int | None, max_reconsume_times: int
    ) -> Message:
        """Return the message to put, see ``EmbeddedLog.send_back``.

        Raises:
            RefusedStoreError: delayed delivery is disabled, or the message has expired.
            CorruptionError: the message is damaged.
            StoreError: as for ``LogTopics.create``.
        """
        check_kind(LogMessage, "a LogMessage", message=message)
        check_numbers(max_reconsume_times=max_reconsume_times)
        wanted = 0 if level is None else checked_level(level)
        self._check(group)
        return self.copy_for(group, self._stored(message), wanted, max_reconsume_times)

    def copy_for(
        self, group: str, stored: StoredMessage, level: int, max_reconsume_times: int,
        queues: int = QUEUES,
    ) -> Message:  # fmt: skip
        """Return the copy to put of a message that ``group`` could not process.

        With level 0 the delay grows with each try; below 0 it is a dead letter. ``queues``: number
        of queues of a new retry topic.

        Raises:
            RefusedStoreError: delayed delivery is disabled.
            StoreError: as for ``LogTopics.create``.
        """
        self._check(group)
        times = stored.tail.reconsume_times
        is_dead = times >= max_reconsume_times or level < 0
        topic = (DLQ_PREFIX if is_dead else RETRY_PREFIX) + group
        self._topics.create_unless_known(topic, QUEUES if is_dead else queues)
        if not is_dead:  # so that metrics include the lag of retries that no tail reads
            first = partial(self._store.min_offset, topic)
            self._offsets.begin(group, topic, self._topics.queues_to_read(topic), first)
        delay = 0 if is_dead else level or _FIRST_LEVEL + times
        return _copy(stored, topic, self._topics.queue_of(topic, None), delay)

    def _check(self, group: str) -> None:
        check_group_name(group)
        if not self.is_on:
            raise RefusedStoreError(
                "cannot send the message back: delayed delivery is disabled. Open the log with"
                " StoreConfig(enable_schedule_message_service=True)", path=self._store.root,
            )  # fmt: skip

    def _stored(self, message: LogMessage) -> StoredMessage:
        """Return the record of a message that was read from the log."""
        place = message.topic, message.queue_id, message.queue_offset
        found = self._store.get_message(*place, 1)
        for queue_offset, stored in zip(found.queue_offsets, found.messages(), strict=True):
            same = stored.store_timestamp == message.store_timestamp
            if queue_offset == message.queue_offset and same:
                stored.check_body()  # the copy would get a new checksum that hides damage
                return stored
        raise RefusedStoreError(
            f"message {place[2]} of queue {place[1]} of topic {place[0]!r} no longer exists",
            path=self._store.root,
        )


def _copy(stored: StoredMessage, topic: str, queue_id: int, level: int) -> Message:
    """Return the copy of a message for ``topic``, with one more failed attempt."""
    properties = {
        name: value for name, value in stored.properties.items() if name not in _OF_RECORD
    }
    properties.setdefault(MessageProperty.RETRY_TOPIC, stored.topic)
    properties.setdefault(MessageProperty.ORIGIN_MESSAGE_ID, stored.message_id)
    properties[MessageProperty.DELAY] = str(level)
    head = stored.head
    return Message(
        topic, bytes(stored.stored_body), queue_id, properties, head.flag, head.sys_flag,
        head.born_timestamp, stored.born_host, reconsume_times=stored.tail.reconsume_times + 1,
    )  # fmt: skip
