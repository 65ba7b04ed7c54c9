"""ServedBroker: what all requests share, the store, its tables, and the state of the clients."""

from collections.abc import Callable
from dataclasses import dataclass, field

from cqstore.broker.metadata.model import Json
from cqstore.broker.topic_kind import group_of
from cqstore.remoting.command import Command
from cqstore.serve.broker_stats import BrokerStats
from cqstore.serve.broker_tables import READABLE, BrokerTables, TopicInfo, topic_info
from cqstore.serve.codes import ResponseCode
from cqstore.serve.consumer_groups import ConsumerGroups
from cqstore.serve.group_offsets import CommittedOffsets
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_store import ServedStore
from cqstore.store.progress import noop
from cqstore.store.record.message import RETRY_PREFIX
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.made_topics import TopicQueues, topic_row

NAME, CLUSTER = "cqstore", "DefaultCluster"
"""Default names of the broker and of its cluster."""
DEFAULT_TOPIC = "TBW102"
"""Name of ``ServedBroker.default_topic``."""
JobHandler = Callable[[Request, MessageStore], Command]
"""Answers a request in a thread; the store stays open meanwhile."""


@dataclass(slots=True)
class ServedBroker:
    """One served store and its clients. Tables are replaced as a whole."""

    served: ServedStore
    offsets: CommittedOffsets
    name: str = NAME
    """Name of the broker, part of the queues that clients see."""
    cluster: str = CLUSTER
    advertised: str = ""
    """Address that clients are told; empty: the one to which they have connected."""
    groups: ConsumerGroups = field(default_factory=ConsumerGroups)
    tables: BrokerTables = field(default_factory=BrokerTables)
    perm: int = READABLE
    """Permissions that routes may show: producers find no queue unless it is writable."""
    default_topic: TopicInfo | None = None
    """The topic whose route producers use for a topic that does not exist."""
    on_group: Callable[[str], object] = noop
    """Called with a group to which a consumer was added."""
    stats: BrokerStats = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self.stats = BrokerStats(self.cluster)

    def use_tables(self, tables: BrokerTables) -> None:
        """Serve other tables from now on."""
        self.tables = tables
        self.offsets.use_stored(tables.offsets)

    def add_topic(self, topic: str, row: Json) -> None:
        """Serve one topic more."""
        self.tables = self.tables.with_topic(topic, row)

    def topic(self, store: MessageStore, topic: str) -> TopicInfo:
        """Return a topic.

        Each known group has a retry topic, as in a broker that has heard of the group: without
        messages, it exists only here.

        Raises:
            RefusedRequestError: it does not exist.
        """
        found = self.tables.topic(store, topic)
        if topic == DEFAULT_TOPIC and self.default_topic is not None:
            found = self.default_topic
        if found is None and self._is_retry_topic(topic):
            found = topic_info(topic_row(topic, TopicQueues(queues=1)))
        if found is None:
            raise RefusedRequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {topic!r} does not exist in this store"
            )
        return found

    def knows_group(self, group: str) -> bool:
        """Return whether a group is connected, or has a row or an offset. Any thread."""
        return (
            self.groups.get(group) is not None
            or group in self.tables.groups
            or self.offsets.has_group(group)
        )

    def _is_retry_topic(self, topic: str) -> bool:
        if not topic.startswith(RETRY_PREFIX):
            return False
        group = group_of(topic)
        return group is not None and self.knows_group(group)
