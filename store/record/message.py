"""Messages, as producers put them and as the log stores them, with their flags and hosts."""

from enum import IntEnum, IntFlag

from cqstore.store.record._message import Message
from cqstore.store.record.host import LOOPBACK, Host

__all__ = [
    "CHECKPOINT_TOPIC", "COMPRESSION_SHIFT", "DLQ_PREFIX", "HALF_TOPIC", "LMQ_PREFIX", "LOOPBACK",
    "OP_HALF_TOPIC", "RETRY_PREFIX", "SCHEDULE_TOPIC", "SYSTEM_PREFIX", "SYSTEM_TOPICS",
    "TIMER_TOPIC", "TRANSACTION_MASK", "CompressionType", "Host", "Message", "MessageProperty",
    "SysFlag", "is_queued",
]  # fmt: skip


class SysFlag(IntFlag):
    """Bits of a record's ``sys_flag``. Stored on disk: do not renumber."""

    COMPRESSED = 0x001
    MULTI_TAGS = 0x002
    TRANSACTION_PREPARED = 0x004
    TRANSACTION_COMMIT = 0x008
    TRANSACTION_ROLLBACK = 0x00C
    BORN_HOST_V6 = 0x010
    STORE_HOST_V6 = 0x020
    NEED_UNWRAP = 0x040
    INNER_BATCH = 0x080
    COMPRESSION_TYPE = 0x700
    PASSED_OVER = 0x4000_0000
    """Used by cqstore only: the record replaces a damaged one, see ``filler``."""


MAX_BATCH_SIZE = 32_767
"""Maximum number of messages in an inner batch: a unit of a batch queue has two bytes for it."""
TRANSACTION_MASK = 0x00C
COMPRESSION_SHIFT = 8
_UNQUEUED_BIT = 0x4  # the transaction bit that COMMIT does not have


def is_queued(sys_flag: int) -> bool:
    """Return whether a record takes part in its queue: not PREPARED, not ROLLBACK."""
    return not sys_flag & _UNQUEUED_BIT


class CompressionType(IntEnum):
    """Bits 8 to 10 of ``sys_flag``. Stored on disk: do not renumber."""

    UNNAMED = 0  # used by old producers: zlib
    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


class MessageProperty:
    """Names of the properties that the store itself reads or writes."""

    KEYS = "KEYS"
    TAGS = "TAGS"
    WAIT = "WAIT"
    DELAY = "DELAY"
    TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
    TIMER_DELAY_MS = "TIMER_DELAY_MS"
    TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
    TIMER_OUT_MS = "TIMER_OUT_MS"
    REAL_TOPIC = "REAL_TOPIC"
    REAL_QID = "REAL_QID"
    RETRY_TOPIC = "RETRY_TOPIC"
    ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
    UNIQ_KEY = "UNIQ_KEY"
    INNER_NUM = "INNER_NUM"
    INNER_BASE = "INNER_BASE"
    INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
    INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
    CRC32 = "__CRC32#"


SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC = "rmq_sys_wheel_timer"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
"""Not a topic: the name of RocksDB's checkpoint entry."""
HALF_TOPIC, OP_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
RETRY_PREFIX, DLQ_PREFIX = "%RETRY%", "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_PREFIX = "rmq_sys_"
SYSTEM_TOPICS = frozenset({
    "TBW102", SCHEDULE_TOPIC, "BenchmarkTest", HALF_TOPIC, "RMQ_SYS_TRACE_TOPIC",
    OP_HALF_TOPIC, "TRANS_CHECK_MAX_TIME_TOPIC", "SELF_TEST_TOPIC",
    "OFFSET_MOVED_EVENT", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    CHECKPOINT_TOPIC,
})  # fmt: skip
"""The broker's system topics (RocketMQ ``TopicValidator``)."""
