"""Results of put and get: values, not exceptions, with RocketMQ's names."""

from enum import Enum, auto
from typing import NamedTuple

from cqstore.store.log.commit_log import Appended
from cqstore.store.record.host import Host
from cqstore.store.record.message_id import encode_message_id
from cqstore.store.service._results import GetMessageResult, QueryMessageResult
from cqstore.store.service.pull_status import DamagedRecord, GetMessageStatus

__all__ = [
    "DamagedRecord", "GetMessageResult", "GetMessageStatus", "PutMessageResult", "PutMessageStatus",
    "QueryMessageResult",
]  # fmt: skip


class PutMessageStatus(Enum):
    """Result of a put. The message is stored with ``PUT_OK`` and the ``FLUSH_…`` ones."""

    PUT_OK = auto()
    FLUSH_DISK_TIMEOUT = auto()
    FLUSH_SLAVE_TIMEOUT = auto()
    """Not acknowledged by enough followers in time; it may still be replicated later."""
    IN_SYNC_REPLICAS_NOT_ENOUGH = auto()
    SERVICE_NOT_AVAILABLE = auto()
    CREATE_MAPPED_FILE_FAILED = auto()
    MESSAGE_ILLEGAL = auto()
    PROPERTIES_SIZE_EXCEEDED = auto()
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = auto()
    UNKNOWN_ERROR = auto()


class PutMessageResult(NamedTuple):
    """Result of putting one message; ``appended`` is ``None`` if nothing was stored."""

    status: PutMessageStatus
    appended: Appended | None = None
    queue_offset: int = -1
    store_host: Host | None = None
    reason: str = ""
    """Why the message was refused, in one sentence."""

    @property
    def ok(self) -> bool:
        """Return whether the message is stored (even if a flush or follower was late)."""
        return self.appended is not None

    @property
    def phy_offset(self) -> int:
        """Return the phy offset of the record; -1 if it was not stored."""
        return self.appended.phy_offset if self.appended else -1

    @property
    def message_id(self) -> str:
        """Return the offset message id, empty if nothing was stored."""
        if self.appended is None or self.store_host is None:
            return ""
        return encode_message_id(self.store_host, self.appended.phy_offset)
