"""The log, and the promise that the consume queues keep: a RocketMQ-compatible message store."""

import logging

from store.config import BrokerRole, FlushDiskType, StoreConfig, read_broker_conf
from store.errors import StoreError
from store.queue.time_search import BoundaryType
from store.record.decoder import StoredMessage
from store.record.message import Host, Message
from store.service.message_store import MessageStore
from store.service.reading.puller import TagFilter
from store.service.results import (
    GetMessageResult,
    GetMessageStatus,
    PutMessageResult,
    PutMessageStatus,
)

__all__ = [
    "BoundaryType",
    "BrokerRole",
    "FlushDiskType",
    "GetMessageResult",
    "GetMessageStatus",
    "Host",
    "Message",
    "MessageStore",
    "PutMessageResult",
    "PutMessageStatus",
    "StoreConfig",
    "StoreError",
    "StoredMessage",
    "TagFilter",
    "read_broker_conf",
]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked
