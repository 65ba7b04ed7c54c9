"""Responses to requests that put messages.

Source: RocketMQ ``SendMessageResponseHeader``, ``SendMessageProcessor.handlePutMessageResult``.
"""

from collections.abc import Sequence

from cqstore.remoting.command import Command
from cqstore.serve.broker_tables import TopicInfo
from cqstore.serve.codes import ResponseCode
from cqstore.serve.request import Request
from cqstore.store.queue.facts import QUEUE_TYPE, QueueType
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.service.results import PutMessageResult, PutMessageStatus

REGION = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
"""Properties that a broker adds to messages and responses: its region, whether it is traced."""
_CODES = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
}


def put_response(
    request: Request, queue_id: int, unique_key: str, result: PutMessageResult
) -> Command:
    """Return the response to a message that was put, or refused by the store."""
    return _response(request, [result], queue_id, {"transactionId": unique_key})


def batch_response(
    request: Request,
    topic: TopicInfo,
    queue_id: int,
    batch: Message,
    results: Sequence[PutMessageResult],
) -> Command:
    """Return the response to a client batch that was put, or refused by the store."""
    attributes = topic.row.get("attributes")
    kind = attributes.get(QUEUE_TYPE) if isinstance(attributes, dict) else None
    key = batch.properties.get(MessageProperty.UNIQ_KEY)
    more = {} if key is None else {"transactionId": key}
    if key is not None and kind == QueueType.BATCH.value:
        more["batchUniqId"] = key  # clients give all messages of an inner batch this key
    return _response(request, results, queue_id, more)


def send_back_response(request: Request, result: PutMessageResult) -> Command:
    """Return the response to a message that was sent back: consumers want the code alone."""
    if result.ok:
        return request.respond()
    return request.respond(ResponseCode.SYSTEM_ERROR, _not_stored(result))


def _not_stored(result: PutMessageResult) -> str:
    return f"the message was not stored: {result.reason or result.status.name}"


def _response(
    request: Request, results: Sequence[PutMessageResult], queue_id: int, more: dict[str, str]
) -> Command:
    first = results[0]
    code = _CODES.get(first.status, ResponseCode.SYSTEM_ERROR)
    if not first.ok:
        return request.respond(code, _not_stored(first), REGION)
    fields = {
        "msgId": ",".join(each.message_id for each in results),
        "queueId": str(queue_id),
        "queueOffset": str(first.queue_offset),
    }
    remark = "" if code == ResponseCode.SUCCESS else first.status.name
    return request.respond(code, remark, REGION | fields | more)
