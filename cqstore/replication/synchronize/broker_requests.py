"""Requests to a broker, and checks of its responses: topics, groups, offsets, end of the log.

Topics and groups are read in pages, ordered by name. RocketMQ's own reader stops one name early: of
2000k+1 names it never reads the last one, and deletes it. Here, a table is accepted if it has as
many names as the broker reports, all of one version; if it changes meanwhile, it is read again from
the start. If a name is removed while RocketMQ cuts a page, it may respond with an error; that is
treated as a change, too.

Source: RocketMQ ``BrokerOuterAPI``, ``AdminBrokerProcessor``.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard

from cqstore.broker.metadata.lmq_offsets import LMQ_TABLE
from cqstore.remoting.command import Command
from cqstore.replication.errors import BrokerError
from cqstore.replication.synchronize.broker_client import (
    NO_SUCH_TOPIC,
    SUCCESS,
    SYSTEM_ERROR,
    UNKNOWN_CODE,
    BrokerClient,
    refusal,
)
from cqstore.store.broker_files.fastjson import broker_object

TOPIC_CONFIG, CONSUMER_OFFSET, DELAY_OFFSET, GROUP_CONFIG = 21, 43, 45, 201
TIMER_CHECK_POINT, TIMER_METRICS, MESSAGE_REQUEST_MODE = 60, 61, 402
RUNTIME_INFO, ONE_TOPIC, HA_STATUS = 28, 351, 907
MAX_TABLE_BYTES = 512 << 20
"""Maximum size of the JSON of one table, all pages: about three million topics."""
_MAX_NAMES = 10_000_000
_PAGE_NAMES = 2000
"""RocketMQ's page size; a broker sends at most its own setting (``splitMetadataSize``)."""
_MAX_PASSES = 5
_TABLE_SECONDS = 300.0
_LONG = range(-(1 << 63), 1 << 63)
_TIMER_BYTES = 56
_MAX_DIGITS = 19
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Paged:
    """How to request one table page by page: the code of the request, and the keys of its JSON."""

    what: str
    code: int
    table: str
    """Key of the table in the response."""
    seq: str
    limit: str
    total: str
    beside: str
    """Key of a second table in the same response, for some of the same names."""


TOPICS = Paged(
    "the topics", TOPIC_CONFIG, "topicConfigTable", "topicSeq", "maxTopicNum", "totalTopicNum",
    "topicQueueMappingDetailMap",
)  # fmt: skip
GROUPS = Paged(
    "the groups", GROUP_CONFIG, "subscriptionGroupTable", "groupSeq", "maxGroupNum",
    "totalGroupNum", "forbiddenTable",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrokerTable:
    """All entries of a broker's table, of one version, as the broker wrote them."""

    entries: Json
    version: Json
    beside: Json
    beside_version: Json
    """Empty: the second table has no version of its own."""


@dataclass(frozen=True, slots=True)
class Page:
    """A broker's response to one request for a page of a table."""

    part: BrokerTable
    total: int | None
    """``None``: the broker does not support pages, and sends all entries."""
    size: int


async def fetch_table(
    client: BrokerClient, of: Paged, held: BrokerTable | None = None
) -> BrokerTable:
    """Return the broker's table; ``held`` itself if it has not changed.

    Raises:
        BrokerError: the request is refused, or the table is incomplete, malformed, or keeps
            changing.
        OSError, WireError: as for ``BrokerClient.request``.
    """
    refused: BrokerError | None = None
    try:
        async with asyncio.timeout(_TABLE_SECONDS):
            for _ in range(_MAX_PASSES):
                try:
                    refused, table = None, await _one_pass(client, of, held)
                except BrokerError as exc:
                    if exc.code != SYSTEM_ERROR:
                        raise
                    refused, table = exc, None
                if table is not None:
                    return table
                held = None
    except TimeoutError as exc:
        raise BrokerError(f"timed out while reading {of.what} from the broker") from exc
    raise refused or BrokerError(
        f"{of.what} changed while they were being read, {_MAX_PASSES} times in a row"
    )


async def _one_pass(
    client: BrokerClient, of: Paged, held: BrokerTable | None
) -> BrokerTable | None:
    """Return ``held`` if it has not changed, else read all pages; ``None`` if they change."""
    if held is not None and held.entries and await _is_still(client, of, held):
        return held
    page = await _page(client, of, 0, {})
    table, total, size = page.part, page.total, page.size
    if total is None or len(table.entries) == total:
        return table
    while len(table.entries) < total:
        known = len(table.entries)
        page = await _page(client, of, known, table.version)
        if page.total != total or page.part.version != table.version:
            return None
        table.entries.update(page.part.entries)
        table.beside.update(page.part.beside)
        if len(table.entries) == known:
            raise BrokerError(f"{of.what} are incomplete: the broker has {total} but sent {known}")
        size += page.size
        if size > MAX_TABLE_BYTES:
            raise BrokerError(f"{of.what} exceed {MAX_TABLE_BYTES} bytes")
    # If a name is removed before the version changes, later pages begin one name too late.
    return table if await _is_still(client, of, table) else None


async def _is_still(client: BrokerClient, of: Paged, held: BrokerTable) -> bool:
    """Return whether the broker's table equals ``held``; requests the page after its last name."""
    page = await _page(client, of, len(held.entries), held.version)
    return (
        page.total == len(held.entries) and page.part.version == held.version
        and held.entries.keys() >= page.part.entries.keys()
        and page.part.beside_version == held.beside_version
    )  # fmt: skip


async def _page(client: BrokerClient, of: Paged, at: int, version: Json) -> Page:
    fields = {
        of.seq: str(at), of.limit: str(_PAGE_NAMES),
        "dataVersion": json.dumps(version) if version else "",
    }  # fmt: skip
    answer = await client.request_ok(of.what, of.code, fields)
    return await asyncio.to_thread(_read_page, of, answer)


def _read_page(of: Paged, answer: Command) -> Page:
    """Return the page of a table in a broker's response.

    Raises:
        BrokerError: the response is not a valid page.
    """
    found = _object(of.what, answer.body)
    total = answer.fields.get(of.total)
    beside_version = found.get("mappingDataVersion") or {}
    part = BrokerTable(
        _table_of(of.what, found, of.table),
        _version(of.what, found.get("dataVersion")),
        _table_of(of.what, found, of.beside) if found.get(of.beside) is not None else {},
        _version(of.what, beside_version) if beside_version else {},
    )
    page = Page(part, None if total is None else _number(of.what, total), len(answer.body))
    if page.total is not None and page.total > _MAX_NAMES:
        raise BrokerError(
            f"{of.what}: the broker has {page.total}, more than the limit of {_MAX_NAMES}"
        )
    return page


# ---- complete responses


async def consumer_offsets(client: BrokerClient) -> Json:
    """Return ``offsetTable`` (``topic@group`` → queue id → offset) and ``dataVersion``.

    Also ``lmqOffsetTable``, if there is one: a broker with ``enableLmq`` and file queues has the
    offsets of LMQ groups there (``topic@group`` → offset).

    Raises:
        BrokerError, OSError, WireError: as for ``fetch_table``.
    """
    what = "the consumer offsets"
    found = await _whole(client, what, CONSUMER_OFFSET)
    table = _table_of(what, found, "offsetTable")
    _check(what, table.values(), _is_offsets)
    answer = {"offsetTable": table, "dataVersion": _version(what, found.get("dataVersion"))}
    if found.get(LMQ_TABLE) is not None:
        lmq = answer[LMQ_TABLE] = found[LMQ_TABLE]
        _check(what, lmq.values() if isinstance(lmq, dict) else [lmq], _is_long)
    return answer


async def delay_offsets(client: BrokerClient) -> Json:
    """Return ``offsetTable`` (delay level → offset) and, if there is one, ``dataVersion``."""
    what = "the delay offsets"
    found = await _whole(client, what, DELAY_OFFSET)
    table = found.get("offsetTable")
    _check(what, [table], _is_offsets)
    version = found.get("dataVersion")
    return {"offsetTable": table} | ({"dataVersion": _version(what, version)} if version else {})


async def request_modes(client: BrokerClient) -> Json:
    """Return ``messageRequestModeMap``, topic → group → mode."""
    what = "the request modes"
    found = await _whole(client, what, MESSAGE_REQUEST_MODE)
    return {"messageRequestModeMap": _table_of(what, found, "messageRequestModeMap")}


async def timer_metrics(client: BrokerClient) -> Json:
    """Return ``timingCount`` and ``dataVersion``."""
    what = "the timer metrics"
    found = await _whole(client, what, TIMER_METRICS)
    version = _version(what, found.get("dataVersion"))
    return {"dataVersion": version, "timingCount": _table_of(what, found, "timingCount")}


async def timer_check_point(client: BrokerClient) -> bytes:
    """Return the timer's check point: seven numbers of eight bytes.

    Raises:
        BrokerError: the broker refuses the request, or its response is invalid.
        OSError, WireError: as for ``BrokerClient.request``.
    """
    answer = await client.request_ok("the timer checkpoint", TIMER_CHECK_POINT)
    if len(answer.body) != _TIMER_BYTES:
        raise BrokerError(
            f"the timer checkpoint has {len(answer.body)} bytes, expected {_TIMER_BYTES}"
        )
    return answer.body


async def has_topic(client: BrokerClient, topic: str) -> bool:
    """Return whether the broker's table has ``topic`` now.

    Raises:
        BrokerError: the broker refuses the request, or its response is invalid.
        OSError, WireError: as for ``BrokerClient.request``.
    """
    answer = await client.request(ONE_TOPIC, {"topic": topic})
    if answer.code not in {SUCCESS, NO_SUCH_TOPIC}:
        raise refusal("a topic", ONE_TOPIC, answer)
    return answer.code == SUCCESS


@dataclass(frozen=True, slots=True)
class LogEnd:
    """The end of a master's log, and its followers."""

    max_phy_offset: int
    slave_ports: frozenset[int] | None
    """Ports of the followers; ``None``: the broker does not report them."""


async def log_end(client: BrokerClient) -> LogEnd:
    """Return where the broker's log ends now.

    A broker before 5.0 does not support the cheap request; all of its statistics are requested.

    Raises:
        BrokerError: the broker refuses the request, or its response is invalid.
        OSError, WireError: as for ``BrokerClient.request``.
    """
    what = "the replication status"
    answer = await client.request(HA_STATUS)
    if answer.code == UNKNOWN_CODE:
        table = (await _whole(client, "the runtime info", RUNTIME_INFO)).get("table")
        end = table.get("commitLogMaxOffset") if isinstance(table, dict) else None
        return LogEnd(_number("the runtime info", end), None)
    if answer.code != SUCCESS:
        raise refusal(what, HA_STATUS, answer)
    found = _object(what, answer.body)
    if found.get("master") is not True:
        raise BrokerError(
            "the broker is not a master: give the address of the master that is followed"
        )
    end, slaves = found.get("masterCommitLogMaxOffset"), found.get("haConnectionInfo")
    if not _is_long(end) or end < 0 or not isinstance(slaves, list):
        raise _malformed(what, "the end of the log or the list of slaves is missing")
    places = (each.get("addr") if isinstance(each, dict) else None for each in slaves)
    ports = (place.rpartition(":")[2] for place in places if isinstance(place, str))
    return LogEnd(end, frozenset(int(port) for port in ports if _is_decimal(port)))


async def _whole(client: BrokerClient, what: str, code: int) -> Json:
    answer = await client.request_ok(what, code)
    return await asyncio.to_thread(_object, what, answer.body)


# ---- content of a response


def _object(what: str, body: bytes) -> Json:
    try:
        return broker_object(body)
    except ValueError as exc:
        raise _malformed(what, exc) from exc


def _malformed(what: str, why: object) -> BrokerError:
    return BrokerError(f"cannot read the broker's response for {what}: {str(why)[:300]}")


def _table_of(what: str, found: Json, key: str) -> Json:
    table = found.get(key)
    if not isinstance(table, dict):
        raise _malformed(what, f"table {key} is missing")
    _check(what, table.values(), lambda each: isinstance(each, dict))
    return table


def _check(what: str, values: Iterable[object], is_right: Callable[[object], bool]) -> None:
    for value in values:
        if not is_right(value):
            raise _malformed(what, f"invalid entry {str(value)[:100]!r}")


def _version(what: str, found: object) -> Json:
    keys = ("counter", "timestamp")
    if not isinstance(found, dict) or not all(_is_long(found.get(key)) for key in keys):
        raise _malformed(what, "dataVersion is missing or invalid")
    return found


def _is_offsets(found: object) -> bool:
    return isinstance(found, dict) and all(
        _is_decimal(key) and _is_long(value) for key, value in found.items()
    )


def _is_long(value: object) -> TypeGuard[int]:
    return type(value) is int and value in _LONG


def _is_decimal(text: object) -> TypeGuard[str]:
    return (
        isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS
    )


def _number(what: str, text: object) -> int:
    if not _is_decimal(text):
        raise _malformed(what, f"invalid number {str(text)[:40]!r}")
    return int(text)
