"""The log, and the promise that the consume queues keep: a RocketMQ-compatible message store."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.config import FlushDiskType, StoreConfig, read_broker_conf
    from store.errors import StoreError
    from store.queue.time_search import BoundaryType
    from store.record.decoder import StoredMessage
    from store.record.message import Host, Message
    from store.replica_config import BrokerRole
    from store.service.message_store import MessageStore
    from store.service.reading.puller import TagFilter
    from store.service.results import (
        GetMessageResult,
        GetMessageStatus,
        PutMessageResult,
        PutMessageStatus,
    )

    __version__: str

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

_PLACES = {
    "BoundaryType": "queue.time_search",
    "BrokerRole": "replica_config",
    "FlushDiskType": "config",
    "GetMessageResult": "service.results",
    "GetMessageStatus": "service.results",
    "Host": "record.message",
    "Message": "record.message",
    "MessageStore": "service.message_store",
    "PutMessageResult": "service.results",
    "PutMessageStatus": "service.results",
    "StoreConfig": "config",
    "StoreError": "errors",
    "StoredMessage": "record.decoder",
    "TagFilter": "service.reading.puller",
    "read_broker_conf": "config",
}

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless asked


if not TYPE_CHECKING:  # a type checker would take any name for a public one

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for: every command imports this package."""
        if name == "__version__":
            globals()[name] = import_module("importlib.metadata").version("cqstore")
            return globals()[name]
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return __all__
