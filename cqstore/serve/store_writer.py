"""StoreWriter: what a writable server changes in its store, besides messages.

Topics and consumer offsets are those of the store's own tables, as an embedded log keeps them, so
that a broker can continue with the store.

Source: RocketMQ ``TopicConfigManager``, ``SubscriptionGroupManager``.
"""

from dataclasses import dataclass, replace

from cqstore.broker.metadata.model import BrokerMetadata, Json, Table
from cqstore.broker.metadata.owned_table import read_table
from cqstore.embedded.consumer_offsets import INTERVAL_SECONDS
from cqstore.embedded.errors import TooManyTopicsError
from cqstore.embedded.log_tables import LogTables
from cqstore.embedded.names import is_topic_name
from cqstore.embedded.send_back import MAX_RECONSUME_TIMES, QUEUES, RetryTopics
from cqstore.serve.broker_tables import READABLE, WRITABLE, row_number, topic_info
from cqstore.serve.limits import ServeLimits
from cqstore.serve.served_broker import CLUSTER, DEFAULT_TOPIC, NAME, ServedBroker
from cqstore.serve.served_store import ServedStore
from cqstore.serve.store_offsets import StoreOffsets
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.record.message import RETRY_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row
from cqstore.store.service.opening.components import components_of

_LOG = StoreLogger(__name__)
MAX_NEW_TOPICS = 1000
"""Default of ``WriteSettings.max_new_topics``."""
_INHERIT = 1
_HEADER_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """What clients may create."""

    max_new_topics: int = MAX_NEW_TOPICS
    """Maximum number of topics that one server creates, retry and dead-letter topics included."""
    creates_topics: bool = True
    """``autoCreateTopicEnable``: whether a send to a new topic creates it."""
    default_queues: int = 8
    """``defaultTopicQueueNums``: maximum number of queues of such a topic; clients ask for 4."""


class StoreWriter:
    """The tables of one store that is open for writing. In the server's event loop."""

    def __init__(self, store: MessageStore, settings: WriteSettings | None = None) -> None:
        """Take over the tables of ``store``. The caller closes the writer, then the store.

        Raises:
            StoreError: a table cannot be read.
        """
        self.store = store
        self.settings = used = settings or WriteSettings()
        self._groups = read_table(components_of(store).paths, Table.GROUPS)
        self.topics, offsets = LogTables.take_over(
            store, used.default_queues, INTERVAL_SECONDS, max_new_topics=used.max_new_topics
        )
        self._offsets = offsets
        self.retries = RetryTopics(store, self.topics, offsets)

    def broker(
        self, name: str = NAME, cluster: str = CLUSTER, advertised: str = ""
    ) -> ServedBroker:
        """Return the broker that clients see; see its fields."""
        made = ServedBroker(
            ServedStore(self.store), StoreOffsets(self._offsets), name, cluster, advertised,
            perm=READABLE | WRITABLE, on_group=self.add_group,
        )  # fmt: skip
        if self.settings.creates_topics:
            row = topic_row(DEFAULT_TOPIC, TopicQueues(queues=self.settings.default_queues))
            made.default_topic = topic_info(row | {"perm": READABLE | WRITABLE | _INHERIT})
        self.topics.on_created = made.add_topic
        return made

    def metadata(self) -> BrokerMetadata:
        """Return the tables as they are; the offsets are in use already."""
        return replace(self._groups, topics=self.topics.rows(), offsets={})

    def limits(self, limits: ServeLimits) -> ServeLimits:
        """Return ``limits`` with sizes of requests that have messages."""
        body_bytes = max(self.store.config.max_message_size, limits.body_bytes)
        return replace(limits, body_bytes=body_bytes, header_bytes=_HEADER_BYTES)

    def group(self, name: str) -> Json:
        """Return the row of a group, empty if the broker's table has none."""
        return self._groups.groups.get(name, {})

    def retry_queues(self, group: str) -> int:
        """Return the number of queues of the retry topic; 0: messages are not delivered again."""
        return row_number(self.group(group), "retryQueueNums", QUEUES)

    def max_reconsume_times(self, group: str) -> int:
        """Return how often a message may be sent back before it is a dead letter."""
        return row_number(self.group(group), "retryMaxTimes", MAX_RECONSUME_TIMES)

    def add_group(self, group: str) -> None:
        """Create the retry topic of a group that has a consumer, if it can be created.

        Without it, routes still name the topic, and a message that is sent back is refused.

        Raises:
            StoreError: the table of topics cannot be written.
        """
        topic, queues = RETRY_PREFIX + group, self.retry_queues(group)
        if queues <= 0 or not is_topic_name(topic):
            return
        try:
            self.topics.create_unless_known(topic, queues)
        except TooManyTopicsError as exc:
            _LOG.warning("group %r has no retry topic: %s", group, exc)

    def close(self) -> None:
        """Write the consumer offsets; the store must be open.

        Raises:
            StoreError: they cannot be written; the commits of the last seconds are lost.
        """
        self._offsets.close()
