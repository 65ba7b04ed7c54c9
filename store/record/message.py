"""Messages, as producers put them and as the log stores them, with their flags and hosts."""

import ipaddress
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record import _message


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

_PORT = Struct(">i")


@dataclass(frozen=True)
class Host(_message.HostWire):
    """An address and port, kept as its 8 (IPv4) or 20 (IPv6) bytes on disk."""

    __slots__ = ()
    wire: bytes = field()  # without `field()`, the inherited attribute would be the default

    def __post_init__(self) -> None:
        """Refuse a host that no record can hold.

        Raises:
            IllegalMessageError: ``wire`` has neither 8 nor 20 bytes.
        """
        if type(self.wire) is not bytes or len(self.wire) not in _SIZES:
            sizes = f"{_V4_SIZE} or {_V6_SIZE} bytes"
            raise IllegalMessageError(f"invalid host {self.wire!r:.60}: expected {sizes}")

    @classmethod
    def of(cls, address: str, port: int) -> "Host":
        """Build a host from text. An IPv4-mapped IPv6 address becomes IPv4, as in Java.

        Raises:
            IllegalMessageError: ``address`` is not an IP address or has a zone, or the port is not
                in 0 to 65535.
        """
        if not isinstance(address, str) or type(port) is not int:
            raise IllegalMessageError(
                f"invalid address {address!r} or port {port!r}: expected str and int"
            )
        return _host(address, port)

    @property
    def is_v6(self) -> bool:
        """Return whether the address has 16 bytes."""
        return len(self.wire) == _V6_SIZE

    @property
    def address(self) -> str:
        """Return the IP address as text."""
        return str(ipaddress.ip_address(self.wire[:-4]))

    @property
    def port(self) -> int:
        """Return the port; a port read from disk may be any 32-bit number."""
        port: int = _PORT.unpack(self.wire[-4:])[0]
        return port

    def __reduce__(self) -> tuple[type["Host"], tuple[bytes]]:
        return type(self), (self.wire,)

    def __str__(self) -> str:
        return f"[{self.address}]:{self.port}" if self.is_v6 else f"{self.address}:{self.port}"


_V4_SIZE = 4 + 4
_V6_SIZE = 16 + 4
_SIZES = frozenset({_V4_SIZE, _V6_SIZE})
_MAX_PORT = 65535


@lru_cache(maxsize=4096)  # only IP addresses are cached, and none is longer than 45 characters
def _host(address: str, port: int) -> Host:
    """Return the stored form of address and port.

    Raises:
        IllegalMessageError: no record can hold them.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError as exc:
        raise IllegalMessageError(f"invalid IP address {address!r:.60}") from exc
    if getattr(parsed, "scope_id", None) is not None:
        raise IllegalMessageError(f"invalid IP address {address!r:.60}: zones are not supported")
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if not 0 <= port <= _MAX_PORT:
        raise IllegalMessageError(f"invalid port {port}: expected 0 to {_MAX_PORT}")
    return Host(parsed.packed + _PORT.pack(port))


LOOPBACK = _host("127.0.0.1", 0)


@dataclass(slots=True)
class PyMessage:
    """A message to be put.

    ``body`` is stored as it is (compress it first and set ``sys_flag``); timestamps are ms since
    the epoch, ``born_timestamp`` 0 means now. Tags, keys and the like are ``properties``: no name
    and no value may be empty. What does not fit is refused by the put, before a byte is written.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


if TYPE_CHECKING:
    Message = PyMessage
else:
    _message.bind_message(LOOPBACK, PyMessage.__dataclass_fields__)
    Message = _message.Message
