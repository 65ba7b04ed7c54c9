"""BatchPut: appends inner batches, records of several messages, to batch queues.

Source: RocketMQ ``BatchConsumeQueue.assignQueueOffset``, ``CommitLog.getMessageNum``.
"""

from collections.abc import Callable

from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.record.message_copy import with_properties
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.writing.append import Appender
from cqstore.store.service.writing.batch_topics import BatchTopics
from cqstore.store.service.writing.encoded import Encoded, add_encoded


class BatchPut:
    """Puts inner batches into one store. Any thread may call."""

    def __init__(
        self,
        topics: BatchTopics,
        append: Appender,
        encoded: Callable[[], Encoded],
        rules: EncodingRules,
    ) -> None:
        """``encoded`` returns an empty list of records; ``rules`` accept BatchCQ topics."""
        self.topics = topics
        self._append = append
        self._encoded = encoded
        self._rules = rules

    def put(self, message: Message, size: int) -> PutMessageResult:
        """Append a copy of a message, which has ``size`` messages.

        The offset of the first one is among the properties, so it is encoded under the lock.

        Raises:
            IllegalMessageError: the topic is not a BatchCQ topic, or no record can hold it.
            DiskFullError: nothing was appended.
        """
        self.topics.require(message.topic)
        records = self._encoded()

        def encode(base: int) -> None:
            properties = {**message.properties, MessageProperty.INNER_BASE: str(base)}
            add_encoded(records, with_properties(message, properties), self._rules)

        return self._append.inner_batch((message.topic, message.queue_id), size, records, encode)
