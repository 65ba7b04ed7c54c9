"""Scans as plain rows, and what RocketMQ's dumps and exports have of the same messages."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from cqstore.store.record.message import LMQ_PREFIX, is_queued
from tests.kit.golden import CRASHED, Dump

Row = dict[str, Any]
DUMPED = (
    "topic", "queueId", "queueOffset", "phy", "storeTimestamp", "bornTimestamp", "bornHost",
    "storeHost", "flag", "sysFlag", "reconsumeTimes", "preparedTransactionOffset", "properties",
)  # fmt: skip
"""Columns that a dump has by the same name."""
_TIMES = ("storeTimestamp", "bornTimestamp")


def rows_of(source: Any) -> list[Row]:
    """Return the rows of a table or of what has ``__arrow_c_stream__``; times as ms."""
    table = source if isinstance(source, pa.Table) else pa.table(source)
    for name in _TIMES:
        if name in table.column_names:
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(at).cast(pa.int64()))
    rows: list[Row] = table.to_pylist(maps_as_pydicts="strict")
    return rows


def by_place(rows: list[Row]) -> list[Row]:
    """Return rows in the order of topic, queue and offset."""
    return sorted(rows, key=lambda row: (row["topic"], row["queueId"], row["queueOffset"]))


def dumped(name: str, dump: Dump) -> list[Row]:
    """Return what RocketMQ has in queues, by place; of a store that it left halted, in its log."""
    low, by_phy = dump["commitLog"]["minPhy"], {each["phy"]: each for each in dump["messages"]}
    if name in CRASHED:
        found = [each for each in dump["messages"] if is_queued(each["sysFlag"])]
    else:
        found = [
            by_phy[unit[1]]
            for queue in dump["queues"]
            if not queue["topic"].startswith(LMQ_PREFIX)
            for unit in queue["units"]
            if unit is not None and unit[1] >= low
        ]
    return by_place([{column: each[column] for column in DUMPED} for each in found])


def flip(root: Path, phy_offset: int, body: bytes) -> Path:
    """Change a byte of the body of the record at ``phy_offset``; return the log's file."""
    (log,) = (root / "commitlog").iterdir()
    data = bytearray(log.read_bytes())
    data[data.index(body, phy_offset)] ^= 1
    log.write_bytes(data)
    return log
