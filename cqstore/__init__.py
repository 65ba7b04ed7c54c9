"""A RocketMQ-compatible message store: the public names, which do not change between releases.

The packages below this one are how the store is built; their contents may change with any release.

A name is imported when it is first used, so ``import cqstore`` alone costs nothing. Their types are
in ``__init__.pyi``; a test compares the two lists.
"""

from importlib import import_module

_NAMES = {
    "cqstore.ab.trace.trace": "Trace",
    "cqstore.ab.trace.trace_control": "record_trace",
    "cqstore.analysis.scan": "Scan scan",
    "cqstore.embedded.errors": "PutRefusedError",
    "cqstore.embedded.log": "EmbeddedLog",
    "cqstore.embedded.log_message": "LogMessage TailMessage",
    "cqstore.embedded.open_log": "open=open_log",
    "cqstore.embedded.read_only_tail": "ReadOnlyTail",
    "cqstore.embedded.tail": "Tail",
    "cqstore.store.errors": (
        "CorruptionError DiskFullError DispatcherError IllegalMessageError NoSuchMessageError "
        "NoSuchQueueError PutHookError ReadOnlyStoreError RefusedStoreError StoreClosedError "
        "StoreConfigError StoreError StoreFailedError StoreIOError StoreLockedError "
        "StoreStateError UnsupportedFormatError"
    ),
    "cqstore.store.queue.time_search": "BoundaryType",
    "cqstore.store.queue.units": "QueueKey",
    "cqstore.store.record.decoder": "StoredMessage",
    "cqstore.store.record.message": "Host Message",
    "cqstore.store.service.dispatching.arrivals": (
        "Arrival ArrivalBatch ArrivalListener ArrivalSubscription"
    ),
    "cqstore.store.service.dispatching.dispatcher_list": (
        "CommitLogDispatchStore CommitLogDispatcher DispatchRequest"
    ),
    "cqstore.store.service.message_store": "MessageStore",
    "cqstore.store.service.metrics.metrics": "MetricsSnapshot",
    "cqstore.store.service.reading.puller": "TagFilter",
    "cqstore.store.service.reading.topic_reader": "TopicDamage TopicMessage read_topic",
    "cqstore.store.service.results": (
        "GetMessageResult GetMessageStatus PutMessageResult PutMessageStatus"
    ),
    "cqstore.store.service.writing.put_hooks": "PutMessageHook",
    "cqstore.store.settings.broker_conf": "read_broker_conf",
    "cqstore.store.settings.config": "FlushDiskType RocksDBEngine StoreConfig",
    "cqstore.store.settings.replica_config": "BrokerRole",
}
"""The public names of each module; ``public=name`` where the module has another name for it."""
_PLACES = {
    public: (module, name or public)
    for module, names in _NAMES.items()
    for public, _, name in (each.partition("=") for each in names.split())
}
__all__ = [*sorted(_PLACES)]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name == "__version__":
        found: object = import_module("importlib.metadata").version("cqstore")
    elif name in _PLACES:
        module, attribute = _PLACES[name]
        found = getattr(import_module(module), attribute)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
