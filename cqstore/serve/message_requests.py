"""Requests for single messages and units: by key, by offset id, and the units of a queue.

Answered in threads: a key query may read many pages of an index.

Source: RocketMQ ``QueryMessageProcessor``, ``AdminBrokerProcessor.queryConsumeQueue``.
"""

from itertools import takewhile
from typing import TYPE_CHECKING

from cqstore.remoting.body import json_body
from cqstore.remoting.command import Command
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.serve.pulls import MAX_PULL_BYTES
from cqstore.serve.request import RefusedRequestError, Request
from cqstore.serve.served_broker import JobHandler, ServedBroker
from cqstore.store.errors import StoreError
from cqstore.store.java_numbers import LONG_MAX
from cqstore.store.queue.units import CqUnit
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_UNIQUE_KEY = "_UNIQUE_KEY_QUERY"
_DEFAULT_MAX_NUM = 32
_MAX_UNITS = 10_000
_NO_TIME = LONG_MAX // 2
"""A later end, in ms, is RocketMQ's word for no end."""


class MessageRequests:
    """Answers requests for messages by key or id, and for units."""

    def __init__(self, broker: ServedBroker) -> None:
        self._broker = broker

    def handlers(self) -> dict[int, JobHandler]:
        """Return the functions that answer, by request code."""
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_id,
            RequestCode.QUERY_CONSUME_QUEUE: self.units,
        }

    def by_key(self, request: Request, store: MessageStore) -> Command:
        """Return the newest messages with a key, in log order.

        Raises:
            RefusedRequestError: there is none.
            StoreError: the index cannot be read.
        """
        topic, key = request.name("topic"), request.text("key")
        max_num = request.integer("maxNum")
        if request.flag(_UNIQUE_KEY):
            max_num = _DEFAULT_MAX_NUM
        begin, end = request.long("beginTimestamp"), request.long("endTimestamp")
        found = store.query_message(
            topic, key, min(max(max_num, 0), _MAX_UNITS),
            begin if begin > 0 else None, end if end < _NO_TIME else None,
        )  # fmt: skip
        body = _records(found)
        fields = _index_end(store)
        if not body:
            return request.respond(
                ResponseCode.QUERY_NOT_FOUND, "no message of this topic has the key", fields
            )
        return request.respond(fields=fields, body=body)

    def by_id(self, request: Request, store: MessageStore) -> Command:
        """Return the message at a phy offset, which an offset message id contains.

        Raises:
            RefusedRequestError: no message starts there.
        """
        phy_offset = request.long("offset")
        try:
            message = store.message_by_offset(phy_offset)
        except StoreError as exc:
            raise RefusedRequestError(
                ResponseCode.SYSTEM_ERROR, f"no message at phy offset {phy_offset}: {exc.reason}"
            ) from exc
        return request.respond(body=bytes(message.record))

    def units(self, request: Request, store: MessageStore) -> Command:
        """Return units of a queue from an offset on.

        Raises:
            RefusedRequestError: the queue does not exist, or too many units are requested.
            StoreError: the queue cannot be read.
        """
        topic, queue_id = request.name("topic"), request.integer("queueId")
        first, count = request.long("index"), request.integer("count")
        if not 0 <= count <= _MAX_UNITS:
            raise RefusedRequestError(
                ResponseCode.INVALID_PARAMETER, f"invalid count {count}: expected 0 to {_MAX_UNITS}"
            )
        self._broker.topic(store, topic)
        queue = components_of(store).queues.queue(topic, queue_id)
        low, high = queue.ends()
        units: Iterable[CqUnit] = ()
        if low <= first < high:
            units = takewhile(lambda each: each.queue_offset < first + count, queue.iterate(first))
        body: dict[str, object] = {
            "maxQueueIndex": high, "minQueueIndex": low,
            "queueData": [_unit(each) for each in units],
        }  # fmt: skip
        group = request.command.fields.get("consumerGroup")
        if group:
            body |= self._subscription(group, topic)
        return request.respond(body=json_body(body))

    def _subscription(self, group: str, topic: str) -> dict[str, object]:
        found = self._broker.groups.get(group)
        subscription = None if found is None else found.subscriptions.get(topic)
        if subscription is None:
            return {"filterData": f"{group}@{topic} is not online!"}
        return {"filterData": "null", "subscriptionData": subscription}


def _records(found: list[StoredMessage]) -> bytes:
    """Return the records of the newest messages that fit into one response."""
    chosen: list[bytes] = []
    size = 0
    for message in reversed(found):
        size += message.size
        if chosen and size > MAX_PULL_BYTES:
            break
        chosen.append(bytes(message.record))
    return b"".join(reversed(chosen))


def _index_end(store: MessageStore) -> dict[str, str]:
    """Return the end of the index in files: the last indexed record's store time and phy offset."""
    index = components_of(store).index
    header = index.files[-1].header() if index is not None and index.files else None
    return {
        "indexLastUpdateTimestamp": str(header.end_timestamp if header else 0),
        "indexLastUpdatePhyoffset": str(header.end_phy_offset if header else 0),
    }


def _unit(unit: CqUnit) -> dict[str, object]:
    found: dict[str, object] = {
        "eval": False, "physicOffset": unit.phy_offset, "physicSize": unit.size,
        "tagsCode": unit.tags_code or 0,
    }  # fmt: skip
    if unit.tags_code is None:
        found["msg"] = "the address of the queue extension is invalid"
    return found
