"""Operation lines: what was asked of a store, a JSON object a line, without bodies.

``record_trace`` writes them, ``ab`` reads and replays them. Each has ``op``, one of ``StoreOp``,
the fields of ``FIELDS`` for it, and ``at``, seconds since the trace began. A field that is ``None``
is left out. Times are ms since the epoch; a range ends before its ``to``.

What a store has recorded begins with a line of its own, ``{"trace":"recorded","time":…}``, ``time``
being that of ``at`` 0. A file without it was made by another program.
"""

import json
from collections.abc import Sequence
from enum import StrEnum

RECORDED = "recorded"


class StoreOp(StrEnum):
    """The operations of a store that a trace may hold."""

    PULL = "pull"
    MIN_OFFSET = "minOffset"
    MAX_OFFSET = "maxOffset"
    TIME_SEARCH = "timeSearch"
    ESTIMATE = "estimate"
    LIST_TOPICS = "listTopics"
    QUERY = "query"
    PUT = "put"


FIELDS: dict[StoreOp, tuple[str, ...]] = {
    StoreOp.PULL: ("topic", "queueId", "offset", "count", "tags"),
    StoreOp.MIN_OFFSET: ("topic", "queueId"),
    StoreOp.MAX_OFFSET: ("topic", "queueId"),
    StoreOp.TIME_SEARCH: ("topic", "queueId", "timestamp", "boundary"),
    StoreOp.ESTIMATE: ("topic", "queueId", "from", "to", "tags"),
    StoreOp.LIST_TOPICS: ("prefix",),
    StoreOp.QUERY: ("topic", "key", "count", "begin", "end"),
    StoreOp.PUT: ("topic", "queueId", "size", "tags"),
}
"""Fields by operation. ``tags``: an expression of ``TagFilter``, without it all; of a put its tag.
``count``: most messages. ``boundary``: ``lower`` or ``upper``. ``size``: bytes of the body."""


def first_line(time: int) -> bytes:
    """Return the line that a recording begins with, made at ``time``."""
    return f'{{"trace":"{RECORDED}","time":{time}}}\n'.encode()


def operation_line(op: StoreOp, values: Sequence[object], at: float) -> bytes:
    """Return the line of one operation; ``values`` are those of ``FIELDS``, in order."""
    fields = "".join(
        f'"{name}":{value if type(value) is int else _json(value)},'
        for name, value in zip(FIELDS[op], values, strict=True)
        if value is not None
    )
    return f'{{"op":"{op}",{fields}"at":{at:.6f}}}\n'.encode()


_json = json.JSONEncoder(default=str).encode
"""Made once: ``json.dumps`` would make one a value. ASCII: a name may hold half a pair."""
