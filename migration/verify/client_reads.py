"""ClientReads: reads the same queues of two servers as a consumer does, and compares all responses.

Each request is sent to both. Codes, fields and bytes of the two responses must be equal, but for
what a running broker has appended to the source since the plan.
"""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from cqstore.migration.verify.clients_report import MAX_LISTED, ClientDifference, ClientsReport
from cqstore.remoting.command import Command
from cqstore.replication.synchronize.broker_client import BrokerClient
from cqstore.serve.codes import RequestCode, ResponseCode
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.record_layout import HEAD, STORED, store_timestamp_position

PULL_MESSAGES, PULL_BYTES = 1024, 4 << 20
_GROUP = "cqstore-verify"
_WITH_SUBSCRIPTION = 4
_USUAL = {
    ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}  # fmt: skip
"""Codes after which a consumer reads on."""
_SHOWN = 120
"""Maximum number of characters of a value in a report."""


class DifferentError(Exception):
    """A request was answered differently; carries the difference."""

    def __init__(self, difference: ClientDifference) -> None:
        super().__init__(difference)
        self.difference = difference


class Responses(NamedTuple):
    """The responses of both servers to one request."""

    source: Command
    target: Command


class ClientReads:
    """Reads one queue after the other from two servers; one task."""

    def __init__(self, source: BrokerClient, target: BrokerClient, complete_to: int) -> None:
        """``complete_to``: phy offset up to which both have all messages."""
        self._clients = source, target
        self._complete_to = complete_to
        self.report = ClientsReport()

    async def read(self, key: QueueKey) -> None:
        """Read a queue to its end, and count what was received.

        Raises:
            OSError, WireError: a connection failed, or a response is invalid.
        """
        self.report.queues += 1
        try:
            await _QueueRead(self, key).run()
        except DifferentError as exc:
            self.report.differing += 1
            if len(self.report.listed) < MAX_LISTED:
                self.report.listed.append(exc.difference)

    async def both(self, code: RequestCode, fields: Mapping[str, str]) -> Responses:
        """Send a request to both servers."""
        self.report.requests += 1
        calls = (each.request(code, fields) for each in self._clients)
        return Responses(*await asyncio.gather(*calls))

    def is_later(self, phy_offset: int) -> bool:
        """Return whether a message is not part of the plan."""
        return phy_offset >= self._complete_to


class _QueueRead:
    """One queue, from its first message to its last."""

    def __init__(self, reads: ClientReads, key: QueueKey) -> None:
        self._reads = reads
        self._report = reads.report
        self._topic, self._queue_id = key
        self._queue = {"topic": key.topic, "queueId": str(key.queue_id)}

    async def run(self) -> None:
        """Read the queue.

        Raises:
            DifferentError: the servers differ in a response.
        """
        ends = await self._reads.both(RequestCode.GET_MAX_OFFSET, self._queue)
        of_source, of_target = (int(each.fields.get("offset", 0)) for each in ends)
        if of_source > of_target == 0:  # the target may not have the topic
            await self._check_later(of_source, 0)
            return
        code = self._same(RequestCode.GET_MAX_OFFSET, ends, ignoring="offset")
        low = await self._offset(RequestCode.GET_MIN_OFFSET)
        if low is None or code != ResponseCode.SUCCESS:
            return
        if of_source != of_target:
            await self._check_later(of_source, of_target)
        await self._pull(low, of_target)

    async def _offset(self, request: RequestCode, **more: str) -> int | None:
        """Return an offset of the queue; ``None``: both servers have refused the request."""
        found = await self._reads.both(request, {**self._queue, **more})
        if self._same(request, found) != ResponseCode.SUCCESS:
            return None
        return int(found.source.fields["offset"])

    async def _check_later(self, of_source: int, of_target: int) -> None:
        """Accept that the source has more messages, if all of them are later than the plan."""
        is_later = False
        if of_source > of_target:
            found, _ = await self._reads.both(
                RequestCode.PULL_MESSAGE, self._pull_fields(of_target, 1)
            )
            records = _records(found.body)
            is_later = bool(records) and self._reads.is_later(
                HEAD.unpack_from(records[0]).phy_offset
            )
        if not is_later:
            request = RequestCode.GET_MAX_OFFSET
            raise self._different(request, "offset", str(of_source), str(of_target))
        self._report.later += of_source - of_target

    async def _pull(self, low: int, end: int) -> None:
        """Pull all messages, and look up the first and the last one by their store times."""
        offset, first, last = low, b"", b""
        while offset < end:
            fields = self._pull_fields(offset, min(PULL_MESSAGES, end - offset))
            found = await self._reads.both(RequestCode.PULL_MESSAGE, fields)
            code = self._same(RequestCode.PULL_MESSAGE, found, offset, ignoring="maxOffset")
            after = int(found.source.fields.get("nextBeginOffset", offset))
            if code == ResponseCode.SUCCESS:
                records = _records(found.source.body)
                self._report.messages += len(records)
                first, last = first or next(iter(records), b""), (records or [last])[-1]
                self._report.bytes += len(found.source.body)
            if after <= offset:
                return
            offset = after
        for record in (first, last):
            if record:
                at = store_timestamp_position(HEAD.unpack_from(record).sys_flag)
                time = STORED.unpack_from(record, at).store_timestamp
                await self._offset(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=str(time))

    def _pull_fields(self, offset: int, count: int) -> dict[str, str]:
        return self._queue | {
            "consumerGroup": _GROUP, "queueOffset": str(offset), "maxMsgNums": str(count),
            "sysFlag": str(_WITH_SUBSCRIPTION), "commitOffset": "0", "suspendTimeoutMillis": "0",
            "subscription": "*", "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip

    # ---- comparing

    def _same(
        self,
        request: RequestCode,
        found: Responses,
        offset: int | None = None,
        *,
        ignoring: str = "",
    ) -> int:
        """Return the code of two equal responses.

        Raises:
            DifferentError: they differ in more than the field ``ignoring``.
        """
        one, other = (_facts(each, ignoring) for each in found)
        for name in one.keys() | other.keys():
            if one.get(name) != other.get(name):
                values = _shown(one.get(name)), _shown(other.get(name))
                raise self._different(request, name, *values, offset)
        self._report.refused += found.source.code not in _USUAL
        return found.source.code

    def _different(
        self, request: RequestCode, field: str, source: str, target: str, offset: int | None = None
    ) -> DifferentError:
        found = ClientDifference(
            topic=self._topic, queue_id=self._queue_id, request=request.name, offset=offset,
            field=field, source=source, target=target,
        )  # fmt: skip
        return DifferentError(found)


def _facts(response: Command, ignoring: str) -> dict[str, object]:
    """Return what a client sees of a response."""
    found = {**response.fields, "code": response.code, "remark": response.remark}
    found.pop(ignoring, None)
    return found | {"body": response.body}


def _records(body: bytes) -> list[bytes]:
    """Return the records of a body, up to the first that is not whole."""
    found, at = list[bytes](), 0
    while at + HEAD.size <= len(body):
        size = HEAD.unpack_from(body, at).total_size
        if not HEAD.size <= size <= len(body) - at:
            break
        found.append(body[at : at + size])
        at += size
    return found


def _shown(value: object) -> str:
    """Return a value of a response for a report."""
    if isinstance(value, bytes):
        return f"{len(value)} bytes, {value[: _SHOWN // 4].hex()}"
    return "" if value is None else str(value)[:_SHOWN]
