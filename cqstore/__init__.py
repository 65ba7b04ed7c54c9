"""A RocketMQ-compatible message store: the names to import, which stay as they are.

The packages beside this one are how the store is built. What they hold may move with any release.

A name is imported when it is first used, so ``import cqstore`` alone costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from analysis.scan import Scan, scan
    from embedded.errors import PutRefusedError
    from embedded.log import EmbeddedLog
    from embedded.log_message import LogMessage, TailMessage
    from embedded.open_log import open_log as open  # noqa: A004 - as ``gzip`` calls its own
    from embedded.read_only_tail import ReadOnlyTail
    from embedded.tail import Tail
    from store.broker_conf import read_broker_conf
    from store.config import FlushDiskType, RocksDBEngine, StoreConfig
    from store.errors import (
        CorruptionError,
        DiskFullError,
        DispatcherError,
        IllegalMessageError,
        NoSuchMessageError,
        NoSuchQueueError,
        PutHookError,
        ReadOnlyStoreError,
        RefusedStoreError,
        StoreClosedError,
        StoreConfigError,
        StoreError,
        StoreFailedError,
        StoreIOError,
        StoreLockedError,
        StoreStateError,
        UnsupportedFormatError,
    )
    from store.queue.time_search import BoundaryType
    from store.queue.units import QueueKey
    from store.record.decoder import StoredMessage
    from store.record.message import Host, Message
    from store.replica_config import BrokerRole
    from store.service.dispatching.arrivals import (
        Arrival,
        ArrivalBatch,
        ArrivalListener,
        ArrivalSubscription,
    )
    from store.service.dispatching.dispatcher_list import (
        CommitLogDispatcher,
        CommitLogDispatchStore,
        DispatchRequest,
    )
    from store.service.message_store import MessageStore
    from store.service.metrics.metrics import MetricsSnapshot
    from store.service.reading.puller import TagFilter
    from store.service.reading.topic_reader import TopicDamage, TopicMessage, read_topic
    from store.service.results import (
        GetMessageResult,
        GetMessageStatus,
        PutMessageResult,
        PutMessageStatus,
    )
    from store.service.writing.put_hooks import PutMessageHook

    __version__: str

_MODULES = {
    "Arrival": "store.service.dispatching.arrivals",
    "ArrivalBatch": "store.service.dispatching.arrivals",
    "ArrivalListener": "store.service.dispatching.arrivals",
    "ArrivalSubscription": "store.service.dispatching.arrivals",
    "BoundaryType": "store.queue.time_search",
    "BrokerRole": "store.replica_config",
    "CommitLogDispatchStore": "store.service.dispatching.dispatcher_list",
    "CommitLogDispatcher": "store.service.dispatching.dispatcher_list",
    "CorruptionError": "store.errors",
    "DiskFullError": "store.errors",
    "DispatchRequest": "store.service.dispatching.dispatcher_list",
    "DispatcherError": "store.errors",
    "EmbeddedLog": "embedded.log",
    "FlushDiskType": "store.config",
    "GetMessageResult": "store.service.results",
    "GetMessageStatus": "store.service.results",
    "Host": "store.record.message",
    "IllegalMessageError": "store.errors",
    "LogMessage": "embedded.log_message",
    "Message": "store.record.message",
    "MessageStore": "store.service.message_store",
    "MetricsSnapshot": "store.service.metrics.metrics",
    "NoSuchMessageError": "store.errors",
    "NoSuchQueueError": "store.errors",
    "PutHookError": "store.errors",
    "PutMessageHook": "store.service.writing.put_hooks",
    "PutMessageResult": "store.service.results",
    "PutMessageStatus": "store.service.results",
    "PutRefusedError": "embedded.errors",
    "QueueKey": "store.queue.units",
    "ReadOnlyStoreError": "store.errors",
    "ReadOnlyTail": "embedded.read_only_tail",
    "RefusedStoreError": "store.errors",
    "RocksDBEngine": "store.config",
    "Scan": "analysis.scan",
    "StoreClosedError": "store.errors",
    "StoreConfig": "store.config",
    "StoreConfigError": "store.errors",
    "StoreError": "store.errors",
    "StoreFailedError": "store.errors",
    "StoreIOError": "store.errors",
    "StoreLockedError": "store.errors",
    "StoreStateError": "store.errors",
    "StoredMessage": "store.record.decoder",
    "TagFilter": "store.service.reading.puller",
    "Tail": "embedded.tail",
    "TailMessage": "embedded.log_message",
    "TopicDamage": "store.service.reading.topic_reader",
    "TopicMessage": "store.service.reading.topic_reader",
    "UnsupportedFormatError": "store.errors",
    "open": "embedded.open_log:open_log",
    "read_broker_conf": "store.broker_conf",
    "read_topic": "store.service.reading.topic_reader",
    "scan": "analysis.scan",
}

__all__ = [
    "Arrival",
    "ArrivalBatch",
    "ArrivalListener",
    "ArrivalSubscription",
    "BoundaryType",
    "BrokerRole",
    "CommitLogDispatchStore",
    "CommitLogDispatcher",
    "CorruptionError",
    "DiskFullError",
    "DispatchRequest",
    "DispatcherError",
    "EmbeddedLog",
    "FlushDiskType",
    "GetMessageResult",
    "GetMessageStatus",
    "Host",
    "IllegalMessageError",
    "LogMessage",
    "Message",
    "MessageStore",
    "MetricsSnapshot",
    "NoSuchMessageError",
    "NoSuchQueueError",
    "PutHookError",
    "PutMessageHook",
    "PutMessageResult",
    "PutMessageStatus",
    "PutRefusedError",
    "QueueKey",
    "ReadOnlyStoreError",
    "ReadOnlyTail",
    "RefusedStoreError",
    "RocksDBEngine",
    "Scan",
    "StoreClosedError",
    "StoreConfig",
    "StoreConfigError",
    "StoreError",
    "StoreFailedError",
    "StoreIOError",
    "StoreLockedError",
    "StoreStateError",
    "StoredMessage",
    "TagFilter",
    "Tail",
    "TailMessage",
    "TopicDamage",
    "TopicMessage",
    "UnsupportedFormatError",
    "open",
    "read_broker_conf",
    "read_topic",
    "scan",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Import a public name when it is first used."""
        if name == "__version__":
            globals()[name] = import_module("importlib.metadata").version("cqstore")
            return globals()[name]
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _MODULES[name].partition(":")
        found = getattr(import_module(module), attribute or name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
