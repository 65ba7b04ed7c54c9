"""NewTopics: the topic of a message that a client sends, created if it may be.

Source: RocketMQ ``AbstractSendMessageProcessor.msgCheck``,
``TopicConfigManager.createTopicInSendMessageMethod``.
"""

from collections.abc import Callable
from typing import TypeVar

from cqstore.embedded.errors import TooManyTopicsError
from cqstore.embedded.names import is_topic_name
from cqstore.embedded.send_back import QUEUES
from cqstore.serve.broker_tables import TopicInfo
from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import RefusedRequestError
from cqstore.serve.send_request import SendRequest
from cqstore.serve.served_broker import DEFAULT_TOPIC, ServedBroker
from cqstore.serve.store_writer import StoreWriter
from cqstore.store.record.message import RETRY_PREFIX
from cqstore.store.record.topic_names import is_exempt

_T = TypeVar("_T")


class NewTopics:
    """The topics that clients send to. In the server's event loop."""

    def __init__(self, broker: ServedBroker, writer: StoreWriter) -> None:
        self._broker = broker
        self._writer = writer

    def for_send(self, wanted: SendRequest) -> TopicInfo:
        """Return the topic of a message; it is in the store's table.

        Raises:
            RefusedRequestError: the name is invalid or reserved, or the topic may not be created.
            StoreError: the table cannot be written.
        """
        name = wanted.topic
        if is_exempt(name):
            raise RefusedRequestError(
                ResponseCode.NO_PERMISSION, f"sending messages to topic {name!r} is forbidden"
            )
        if not self._writer.topics.knows(name):
            self.create(name, self._queues(wanted))
        return self._broker.topic(self._writer.store, name)

    def create(self, name: str, queues: int) -> None:
        """Create a topic, unless it exists.

        Raises:
            RefusedRequestError: the name is invalid, or too many topics were created.
            StoreError: the table cannot be written.
        """
        if not is_topic_name(name):
            raise RefusedRequestError(
                ResponseCode.INVALID_PARAMETER,
                f"invalid topic name {name!r:.200}: expected 1 to 127 letters, digits or %|_-",
            )
        self.created(lambda: self._writer.topics.create_unless_known(name, queues))

    def created(self, work: Callable[[], _T]) -> _T:
        """Return the result of ``work``, which may create topics.

        Raises:
            RefusedRequestError: too many topics were created.
            StoreError: raised by ``work``.
        """
        try:
            return work()
        except TooManyTopicsError as exc:
            raise RefusedRequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"{exc.reason} (--max-new-topics)"
            ) from exc

    def _queues(self, wanted: SendRequest) -> int:
        """Return the number of queues of a new topic.

        Raises:
            RefusedRequestError: a send may not create the topic.
        """
        settings = self._writer.settings
        if wanted.topic.startswith(RETRY_PREFIX):
            return QUEUES
        if not settings.creates_topics or wanted.default_topic != DEFAULT_TOPIC:
            why = (
                f"the default topic is {wanted.default_topic!r:.80}, not {DEFAULT_TOPIC}"
                if settings.creates_topics
                else "autoCreateTopicEnable is false"
            )
            raise RefusedRequestError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {wanted.topic!r} does not exist and is not created: {why}",
            )
        queues = min(wanted.default_queues, settings.default_queues)
        if queues <= 0:
            raise RefusedRequestError(
                ResponseCode.INVALID_PARAMETER,
                f"cannot create topic {wanted.topic!r} with {wanted.default_queues} queues",
            )
        return queues
