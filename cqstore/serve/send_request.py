"""SendRequest: the parameters of a request that sends a message or a batch.

Source: RocketMQ ``SendMessageRequestHeader``, ``SendMessageRequestHeaderV2``.
"""

from typing import NamedTuple

from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.store.record.message import TRANSACTION_MASK
from cqstore.store.record.properties import decode_properties

POP_CK = "POP_CK"
"""Property of a message that was consumed with POP; a broker removes it from what is sent."""
PREPARED = "TRAN_MSG"
"""Property of the first half of a transaction."""


class _Names(NamedTuple):
    """The names of the parameters in one version of the header."""

    producer_group: str
    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born_timestamp: str
    flag: str
    properties: str
    reconsume_times: str
    max_reconsume_times: str
    is_batch: str


_V1 = _Names(
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
    "bornTimestamp", "flag", "properties", "reconsumeTimes", "maxReconsumeTimes", "batch",
)  # fmt: skip
_V2 = _Names(*"abcdefghijlm")
_NO_LIMIT = -1


class SendRequest(NamedTuple):
    """The parameters of a request with code 10, 310 or 320."""

    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: dict[str, str]
    reconsume_times: int
    max_reconsume_times: int | None
    is_batch: bool

    @classmethod
    def of(cls, request: Request) -> "SendRequest":
        """Return the parameters in a request.

        Raises:
            RefusedRequestError: one is missing or invalid, the body is too large, or the request
                is part of a transaction.
        """
        names = _V1 if request.command.code == RequestCode.SEND_MESSAGE else _V2
        request.text(names.producer_group)
        limit = request.integer(names.max_reconsume_times, _NO_LIMIT)
        found = cls(
            request.name(names.topic), request.text(names.default_topic),
            request.integer(names.default_queues), request.integer(names.queue_id),
            request.integer(names.sys_flag), request.long(names.born_timestamp),
            request.integer(names.flag), _properties(request.text(names.properties, "")),
            request.integer(names.reconsume_times, 0), None if limit == _NO_LIMIT else limit,
            request.flag(names.is_batch),
        )  # fmt: skip
        _refuse_transaction(found)
        if request.command.skipped:
            raise RefusedRequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the body has {request.command.skipped} bytes, more than maxMessageSize",
            )
        return found


def _properties(text: str) -> dict[str, str]:
    found = decode_properties(text.encode("utf-8", "replace"))
    found.pop(POP_CK, None)
    return found


def _refuse_transaction(wanted: SendRequest) -> None:
    """Refuse a half message, as a broker with ``rejectTransactionMessage`` does.

    Raises:
        RefusedRequestError: the message is part of a transaction.
    """
    is_prepared = wanted.properties.get(PREPARED, "").lower() == "true"
    if is_prepared or wanted.sys_flag & TRANSACTION_MASK:
        raise RefusedRequestError(
            ResponseCode.NO_PERMISSION, "transactions are not supported by this server"
        )
