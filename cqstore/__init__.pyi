from cqstore.ab.trace.trace import Trace as Trace
from cqstore.ab.trace.trace_control import record_trace as record_trace
from cqstore.analysis.scan import Scan as Scan
from cqstore.analysis.scan import scan as scan
from cqstore.embedded.errors import PutRefusedError as PutRefusedError
from cqstore.embedded.log import EmbeddedLog as EmbeddedLog
from cqstore.embedded.log_message import LogMessage as LogMessage
from cqstore.embedded.log_message import TailMessage as TailMessage
from cqstore.embedded.open_log import open_log
from cqstore.embedded.read_only_tail import ReadOnlyTail as ReadOnlyTail
from cqstore.embedded.tail import Tail as Tail
from cqstore.store.errors import (
    CorruptionError as CorruptionError,
)
from cqstore.store.errors import (
    DiskFullError as DiskFullError,
)
from cqstore.store.errors import (
    DispatcherError as DispatcherError,
)
from cqstore.store.errors import (
    IllegalMessageError as IllegalMessageError,
)
from cqstore.store.errors import (
    NoSuchMessageError as NoSuchMessageError,
)
from cqstore.store.errors import (
    NoSuchQueueError as NoSuchQueueError,
)
from cqstore.store.errors import (
    PutHookError as PutHookError,
)
from cqstore.store.errors import (
    ReadOnlyStoreError as ReadOnlyStoreError,
)
from cqstore.store.errors import (
    RefusedStoreError as RefusedStoreError,
)
from cqstore.store.errors import (
    StoreClosedError as StoreClosedError,
)
from cqstore.store.errors import (
    StoreConfigError as StoreConfigError,
)
from cqstore.store.errors import (
    StoreError as StoreError,
)
from cqstore.store.errors import (
    StoreFailedError as StoreFailedError,
)
from cqstore.store.errors import (
    StoreIOError as StoreIOError,
)
from cqstore.store.errors import (
    StoreLockedError as StoreLockedError,
)
from cqstore.store.errors import (
    StoreStateError as StoreStateError,
)
from cqstore.store.errors import (
    UnsupportedFormatError as UnsupportedFormatError,
)
from cqstore.store.queue.time_search import BoundaryType as BoundaryType
from cqstore.store.queue.units import QueueKey as QueueKey
from cqstore.store.record.decoder import StoredMessage as StoredMessage
from cqstore.store.record.message import Host as Host
from cqstore.store.record.message import Message as Message
from cqstore.store.service.dispatching.arrivals import (
    Arrival as Arrival,
)
from cqstore.store.service.dispatching.arrivals import (
    ArrivalBatch as ArrivalBatch,
)
from cqstore.store.service.dispatching.arrivals import (
    ArrivalListener as ArrivalListener,
)
from cqstore.store.service.dispatching.arrivals import (
    ArrivalSubscription as ArrivalSubscription,
)
from cqstore.store.service.dispatching.dispatcher_list import (
    CommitLogDispatcher as CommitLogDispatcher,
)
from cqstore.store.service.dispatching.dispatcher_list import (
    CommitLogDispatchStore as CommitLogDispatchStore,
)
from cqstore.store.service.dispatching.dispatcher_list import (
    DispatchRequest as DispatchRequest,
)
from cqstore.store.service.message_store import MessageStore as MessageStore
from cqstore.store.service.metrics.metrics import MetricsSnapshot as MetricsSnapshot
from cqstore.store.service.reading.puller import TagFilter as TagFilter
from cqstore.store.service.reading.topic_reader import (
    TopicDamage as TopicDamage,
)
from cqstore.store.service.reading.topic_reader import (
    TopicMessage as TopicMessage,
)
from cqstore.store.service.reading.topic_reader import (
    read_topic as read_topic,
)
from cqstore.store.service.results import (
    GetMessageResult as GetMessageResult,
)
from cqstore.store.service.results import (
    GetMessageStatus as GetMessageStatus,
)
from cqstore.store.service.results import (
    PutMessageResult as PutMessageResult,
)
from cqstore.store.service.results import (
    PutMessageStatus as PutMessageStatus,
)
from cqstore.store.service.writing.put_hooks import PutMessageHook as PutMessageHook
from cqstore.store.settings.broker_conf import read_broker_conf as read_broker_conf
from cqstore.store.settings.config import (
    FlushDiskType as FlushDiskType,
)
from cqstore.store.settings.config import (
    RocksDBEngine as RocksDBEngine,
)
from cqstore.store.settings.config import (
    StoreConfig as StoreConfig,
)
from cqstore.store.settings.replica_config import BrokerRole as BrokerRole

__version__: str
__all__: list[str]
open = open_log  # noqa: A001 - as ``gzip`` calls its own
