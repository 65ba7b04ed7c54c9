"""A RocketMQ-compatible message store: the public names, which do not change between releases.

The packages below this one are how the store is built; their contents may change with any release.

A name is imported when it is first used, so ``import cqstore`` alone costs nothing. Their types are
in ``__init__.pyi``; a test compares the two lists.
"""

from importlib import import_module

_NAMES = {
    "cqstore.ab.trace.operation_lines": "StoreOp",
    "cqstore.ab.trace.trace": "Trace",
    "cqstore.ab.trace.trace_control": "record_trace",
    "cqstore.analysis.scan": "Scan scan",
    "cqstore.broker.groups.group_offsets": "OffsetChange",
    "cqstore.embedded.errors": "PutRefusedError",
    "cqstore.embedded.log": "EmbeddedLog",
    "cqstore.embedded.log_message": "LogMessage TailMessage",
    "cqstore.embedded.open_log": "open=open_log",
    "cqstore.embedded.read_only_tail": "ReadOnlyTail",
    "cqstore.embedded.tail": "Tail",
    "cqstore.store.comparing.compared": "Compared",
    "cqstore.store.comparing.tally": (
        "ComparedQueue ComparisonFinding ComparisonNotes ComparisonSums ComparisonTally "
        "DifferenceKind"
    ),
    "cqstore.store.errors": (
        "ChecksumError ConsumeQueueError CorruptionError DiskFullError DispatcherError "
        "IllegalMessageError MagicCodeError NestedCallError NoSuchMessageError NoSuchQueueError "
        "PropertiesTooLongError PutHookError QueueGapError ReadOnlyStoreError RefusedStoreError "
        "RetryableDiskFullError StoreClosedError StoreConfigError StoreError StoreFailedError "
        "StoreIOError StoreLockedError StoreStateError TruncatedRecordError UnsupportedFormatError"
    ),
    "cqstore.store.log.commit_log": "Appended",
    "cqstore.store.progress": "Progress",
    "cqstore.store.queue.facts": "QueueDamage QueueRestart QueueSpan QueueStat",
    "cqstore.store.queue.read_fallbacks": "FallbackReason ReadFallback ReadKind",
    "cqstore.store.queue.time_search": "BoundaryType",
    "cqstore.store.queue.units": "QueueKey",
    "cqstore.store.record.decoder": "StoredMessage",
    "cqstore.store.record.filler": "RecordPlace",
    "cqstore.store.record.message": "Host Message",
    "cqstore.store.record.record_layout": "RecordHead RecordTail",
    "cqstore.store.service.dispatching.arrivals": (
        "Arrival ArrivalBatch ArrivalListener ArrivalSubscription"
    ),
    "cqstore.store.service.dispatching.dispatcher_list": (
        "CommitLogDispatchStore CommitLogDispatcher DispatchRequest"
    ),
    "cqstore.store.service.layout.file_notes": "FileNote",
    "cqstore.store.service.maintenance.check": "CheckFinding StoreCheck",
    "cqstore.store.service.maintenance.clean_service": "ExpiryReport",
    "cqstore.store.service.maintenance.disk_levels": "DiskDemand",
    "cqstore.store.service.maintenance.file_expiry": "FileOutlook",
    "cqstore.store.service.message_store": "MessageStore",
    "cqstore.store.service.metrics.by_group": "GroupFigures GroupOffsets GroupSnapshot",
    "cqstore.store.service.metrics.by_topic": "FiguresByTopic TopicFigures TopicSnapshot",
    "cqstore.store.service.metrics.metrics": "MetricsSnapshot StoreMetrics",
    "cqstore.store.service.opening.options": "RecoveryOptions StoreHooks",
    "cqstore.store.service.reading.arrival_waits": "ThreadWait",
    "cqstore.store.service.reading.loop_waits": "LoopWait",
    "cqstore.store.service.reading.puller": "TagFilter",
    "cqstore.store.service.reading.store_times": "TimeRange",
    "cqstore.store.service.reading.topic_reader": (
        "ReadableStore TopicDamage TopicMessage read_topic"
    ),
    "cqstore.store.service.recovering.find_log_end": "SavedTail",
    "cqstore.store.service.recovering.pass_over": "PassedOver",
    "cqstore.store.service.recovering.queue_rebuild": "RebuildReport",
    "cqstore.store.service.recovering.recovery": "RecoveryReport",
    "cqstore.store.service.recovering.replacement": "Rebuild",
    "cqstore.store.service.results": (
        "DamagedRecord GetMessageResult GetMessageStatus PutMessageResult PutMessageStatus"
        " QueryMessageResult"
    ),
    "cqstore.store.service.runtime.histogram_snapshot": "HistogramSnapshot",
    "cqstore.store.service.runtime.meters": "GetCounts",
    "cqstore.store.service.scheduling.level_delivery": "DelayLevelFigures",
    "cqstore.store.service.writing.put_hooks": "PutMessageHook",
    "cqstore.store.service.writing.replicas": "Replicas",
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
__all__ = [*sorted(_PLACES.keys() - {"open"})]  # noqa: PLE0604 - ``import *`` leaves ``open`` as it is


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
    return [*sorted(_PLACES), "__version__"]
