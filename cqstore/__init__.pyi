from cqstore.ab.trace.operation_lines import StoreOp as StoreOp
from cqstore.ab.trace.trace import Trace as Trace
from cqstore.ab.trace.trace_control import record_trace as record_trace
from cqstore.analysis.scan import Scan as Scan
from cqstore.analysis.scan import scan as scan
from cqstore.broker.cleaning.report import CleaningReport as CleaningReport
from cqstore.broker.cleaning.rules import CleanedTopic as CleanedTopic
from cqstore.broker.cleaning.rules import CleaningRule as CleaningRule
from cqstore.broker.cleaning.rules import CleaningRules as CleaningRules
from cqstore.broker.cleaning.rules import KeptReason as KeptReason
from cqstore.broker.cleaning.topic_cleaner import TopicCleaner as TopicCleaner
from cqstore.broker.cleaning.topic_cleaner import clean_topics as clean_topics
from cqstore.broker.groups.group_offsets import OffsetChange as OffsetChange
from cqstore.embedded.errors import PutRefusedError as PutRefusedError
from cqstore.embedded.log import EmbeddedLog as EmbeddedLog
from cqstore.embedded.log_message import LogMessage as LogMessage
from cqstore.embedded.log_message import TailMessage as TailMessage
from cqstore.embedded.open_log import open_log as _open_log
from cqstore.embedded.read_only_tail import ReadOnlyTail as ReadOnlyTail
from cqstore.embedded.tail import Tail as Tail
from cqstore.store.comparing.compared import Compared as Compared
from cqstore.store.comparing.tally import ComparedQueue as ComparedQueue
from cqstore.store.comparing.tally import ComparisonFinding as ComparisonFinding
from cqstore.store.comparing.tally import ComparisonNotes as ComparisonNotes
from cqstore.store.comparing.tally import ComparisonSums as ComparisonSums
from cqstore.store.comparing.tally import ComparisonTally as ComparisonTally
from cqstore.store.comparing.tally import DifferenceKind as DifferenceKind
from cqstore.store.errors import ChecksumError as ChecksumError
from cqstore.store.errors import ConsumeQueueError as ConsumeQueueError
from cqstore.store.errors import CorruptionError as CorruptionError
from cqstore.store.errors import DiskFullError as DiskFullError
from cqstore.store.errors import DispatcherError as DispatcherError
from cqstore.store.errors import IllegalMessageError as IllegalMessageError
from cqstore.store.errors import MagicCodeError as MagicCodeError
from cqstore.store.errors import NestedCallError as NestedCallError
from cqstore.store.errors import NoSuchMessageError as NoSuchMessageError
from cqstore.store.errors import NoSuchQueueError as NoSuchQueueError
from cqstore.store.errors import PropertiesTooLongError as PropertiesTooLongError
from cqstore.store.errors import PutHookError as PutHookError
from cqstore.store.errors import QueueGapError as QueueGapError
from cqstore.store.errors import ReadOnlyStoreError as ReadOnlyStoreError
from cqstore.store.errors import RefusedStoreError as RefusedStoreError
from cqstore.store.errors import RetryableDiskFullError as RetryableDiskFullError
from cqstore.store.errors import StoreClosedError as StoreClosedError
from cqstore.store.errors import StoreConfigError as StoreConfigError
from cqstore.store.errors import StoreError as StoreError
from cqstore.store.errors import StoreFailedError as StoreFailedError
from cqstore.store.errors import StoreIOError as StoreIOError
from cqstore.store.errors import StoreLockedError as StoreLockedError
from cqstore.store.errors import StoreStateError as StoreStateError
from cqstore.store.errors import TruncatedRecordError as TruncatedRecordError
from cqstore.store.errors import UnsupportedFormatError as UnsupportedFormatError
from cqstore.store.log.commit_log import Appended as Appended
from cqstore.store.progress import Progress as Progress
from cqstore.store.queue.facts import QueueDamage as QueueDamage
from cqstore.store.queue.facts import QueueRestart as QueueRestart
from cqstore.store.queue.facts import QueueSpan as QueueSpan
from cqstore.store.queue.facts import QueueStat as QueueStat
from cqstore.store.queue.read_fallbacks import FallbackReason as FallbackReason
from cqstore.store.queue.read_fallbacks import ReadFallback as ReadFallback
from cqstore.store.queue.read_fallbacks import ReadKind as ReadKind
from cqstore.store.queue.time_search import BoundaryType as BoundaryType
from cqstore.store.queue.units import QueueKey as QueueKey
from cqstore.store.record.decoder import StoredMessage as StoredMessage
from cqstore.store.record.filler import RecordPlace as RecordPlace
from cqstore.store.record.message import Host as Host
from cqstore.store.record.message import Message as Message
from cqstore.store.record.record_layout import RecordHead as RecordHead
from cqstore.store.record.record_layout import RecordTail as RecordTail
from cqstore.store.service.dispatching.arrivals import Arrival as Arrival
from cqstore.store.service.dispatching.arrivals import ArrivalBatch as ArrivalBatch
from cqstore.store.service.dispatching.arrivals import ArrivalListener as ArrivalListener
from cqstore.store.service.dispatching.arrivals import ArrivalSubscription as ArrivalSubscription
from cqstore.store.service.dispatching.dispatcher_list import (
    CommitLogDispatcher as CommitLogDispatcher,
)
from cqstore.store.service.dispatching.dispatcher_list import (
    CommitLogDispatchStore as CommitLogDispatchStore,
)
from cqstore.store.service.dispatching.dispatcher_list import DispatchRequest as DispatchRequest
from cqstore.store.service.layout.file_notes import FileNote as FileNote
from cqstore.store.service.maintenance.check import CheckFinding as CheckFinding
from cqstore.store.service.maintenance.check import StoreCheck as StoreCheck
from cqstore.store.service.maintenance.clean_service import ExpiryReport as ExpiryReport
from cqstore.store.service.maintenance.disk_levels import DiskDemand as DiskDemand
from cqstore.store.service.maintenance.file_expiry import FileOutlook as FileOutlook
from cqstore.store.service.message_store import MessageStore as MessageStore
from cqstore.store.service.metrics.by_group import GroupFigures as GroupFigures
from cqstore.store.service.metrics.by_group import GroupOffsets as GroupOffsets
from cqstore.store.service.metrics.by_group import GroupSnapshot as GroupSnapshot
from cqstore.store.service.metrics.by_topic import FiguresByTopic as FiguresByTopic
from cqstore.store.service.metrics.by_topic import TopicFigures as TopicFigures
from cqstore.store.service.metrics.by_topic import TopicSnapshot as TopicSnapshot
from cqstore.store.service.metrics.cleaning import CleaningFigures as CleaningFigures
from cqstore.store.service.metrics.metrics import MetricsSnapshot as MetricsSnapshot
from cqstore.store.service.metrics.metrics import StoreMetrics as StoreMetrics
from cqstore.store.service.opening.options import RecoveryOptions as RecoveryOptions
from cqstore.store.service.opening.options import StoreHooks as StoreHooks
from cqstore.store.service.reading.arrival_waits import ThreadWait as ThreadWait
from cqstore.store.service.reading.loop_waits import LoopWait as LoopWait
from cqstore.store.service.reading.puller import TagFilter as TagFilter
from cqstore.store.service.reading.store_times import TimeRange as TimeRange
from cqstore.store.service.reading.topic_reader import ReadableStore as ReadableStore
from cqstore.store.service.reading.topic_reader import TopicDamage as TopicDamage
from cqstore.store.service.reading.topic_reader import TopicMessage as TopicMessage
from cqstore.store.service.reading.topic_reader import read_topic as read_topic
from cqstore.store.service.recovering.find_log_end import SavedTail as SavedTail
from cqstore.store.service.recovering.pass_over import PassedOver as PassedOver
from cqstore.store.service.recovering.queue_rebuild import RebuildReport as RebuildReport
from cqstore.store.service.recovering.recovery_report import RecoveryReport as RecoveryReport
from cqstore.store.service.recovering.replacement import Rebuild as Rebuild
from cqstore.store.service.results import DamagedRecord as DamagedRecord
from cqstore.store.service.results import GetMessageResult as GetMessageResult
from cqstore.store.service.results import GetMessageStatus as GetMessageStatus
from cqstore.store.service.results import PutMessageResult as PutMessageResult
from cqstore.store.service.results import PutMessageStatus as PutMessageStatus
from cqstore.store.service.results import QueryMessageResult as QueryMessageResult
from cqstore.store.service.runtime.histogram_snapshot import (
    HistogramSnapshot as HistogramSnapshot,
)
from cqstore.store.service.runtime.meters import GetCounts as GetCounts
from cqstore.store.service.scheduling.level_delivery import DelayLevelFigures as DelayLevelFigures
from cqstore.store.service.writing.put_hooks import PutMessageHook as PutMessageHook
from cqstore.store.service.writing.replicas import Replicas as Replicas
from cqstore.store.settings.broker_conf import read_broker_conf as read_broker_conf
from cqstore.store.settings.config import FlushDiskType as FlushDiskType
from cqstore.store.settings.config import RocksDBEngine as RocksDBEngine
from cqstore.store.settings.config import StoreConfig as StoreConfig
from cqstore.store.settings.replica_config import BrokerRole as BrokerRole

__version__: str
__all__: list[str]
open = _open_log  # noqa: A001 - as ``gzip`` calls its own
