"""The tables as plain Python rows, out of RocketMQ's own dumps of the golden stores."""

import ipaddress
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.kit.golden import Dump

Row = dict[str, Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_of(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


def log_rows(dump: Dump) -> list[Row]:
    """Return a row a record, in log order; no body."""
    return [
        {
            "topic": one["topic"],
            "queue_id": one["queueId"],
            "queue_offset": one["queueOffset"],
            "phy_offset": one["phy"],
            "size": one["storeSize"],
            "store_timestamp": one["storeTimestamp"],
            "store_time": time_of(one["storeTimestamp"]),
            "born_timestamp": one["bornTimestamp"],
            "born_time": time_of(one["bornTimestamp"]),
            "tags": one["properties"].get("TAGS"),
            "keys": one["properties"].get("KEYS"),
            "uniq_key": one["properties"].get("UNIQ_KEY"),
            "flag": one["flag"],
            "sys_flag": one["sysFlag"],
            "born_host": _host(one["bornHost"]),
            "store_host": _host(one["storeHost"]),
            "reconsume_times": one["reconsumeTimes"],
            "prepared_transaction_offset": one["preparedTransactionOffset"],
            "body_crc": one["bodyCRC"],
            "body_length": one["bodyLength"],
            "properties": one["properties"],
        }
        for one in dump["messages"]
    ]


def unit_rows(dump: Dump) -> list[Row]:
    """Return a row a unit, queues in key order."""
    return [
        {
            "topic": queue["topic"],
            "queue_id": queue["queueId"],
            "queue_offset": unit[0],
            "phy_offset": unit[1],
            "size": unit[2],
            "tags_code": unit[3],
            "batch_num": unit[5] if len(unit) > 5 else 1,
            "store_timestamp": unit[4],
            "store_time": time_of(unit[4]),
        }
        for queue in sorted(dump["queues"], key=_key_order)
        for unit in queue["units"]
        if unit is not None
    ]


def _host(java: str) -> str:
    """Return a host as we show it: Java puts a blank before the port and shortens no IPv6."""
    text, port = java.rsplit(" ", 1)
    address = ipaddress.ip_address(text)
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def _key_order(queue: Row) -> tuple[int, bytes, int]:
    name = queue["topic"].encode()
    return len(name), name, queue["queueId"]


COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    "EqualTo": lambda one, two: bool(one == two),
    "In": lambda one, two: one in two,
    "GreaterThan": lambda one, two: bool(one > two),
    "GreaterThanOrEqual": lambda one, two: bool(one >= two),
    "LessThan": lambda one, two: bool(one < two),
    "LessThanOrEqual": lambda one, two: bool(one <= two),
    "StringStartsWith": lambda one, two: bool(one.startswith(two)),
    "IsNotNull": lambda one, _: one is not None,
}
"""Spark's filters, as they are defined."""
