"""Operation lines: the operations of a store, one JSON object per line, without bodies.

``record_trace`` writes them, ``ab`` reads and replays them. Each has ``op``, one of ``StoreOp``,
the fields of ``FIELDS`` for it, and ``at``, seconds since the trace began. A field that is ``None``
is left out. Times are ms since the epoch; a range ends before its ``to``.

A recording begins with the line ``{"trace":"recorded","time":…}``; ``time`` is the time of ``at``
0. A file without that line was made by another program. A recording of a broker (``ab record``) has
``"source":"master"`` there, its lines are only nearly in order of ``at``, and it ends with a line
``{"trace":"end","at":…,"missing":[…]}``, whose sentences say what is missing. Without that line,
the recording was killed.
"""

import json
from collections.abc import Sequence
from enum import StrEnum

RECORDED, END = "recorded", "end"
MASTER = "master"
"""Source of a trace that was recorded from a broker's replication port."""


class StoreOp(StrEnum):
    """Operation of a store that a trace can contain."""

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
"""Fields by operation. ``tags``: a ``TagFilter`` expression, all if missing; for a put, its tag.
``count``: max messages. ``boundary``: ``lower`` or ``upper``. ``size``: bytes of the body."""


def first_line(time: int, source: str = "") -> bytes:
    """Return the first line of a recording that starts at ``time``; no source: a store."""
    of = f',"source":"{source}"' if source else ""
    return f'{{"trace":"{RECORDED}","time":{time}{of}}}\n'.encode()


def last_line(at: float, missing: Sequence[str]) -> bytes:
    """Return the last line of a recording that lasted ``at`` seconds."""
    return f'{{"trace":"{END}","at":{at:.6f},"missing":{_json(list(missing))}}}\n'.encode()


def operation_line(op: StoreOp, values: Sequence[object], at: float) -> bytes:
    """Return the line of one operation; ``values`` are in the order of ``FIELDS``."""
    fields = "".join(
        f'"{name}":{value if type(value) is int else _json(value)},'
        for name, value in zip(FIELDS[op], values, strict=True)
        if value is not None
    )
    return f'{{"op":"{op}",{fields}"at":{at:.6f}}}\n'.encode()


_json = json.JSONEncoder(default=str).encode
"""Made once: ``json.dumps`` would make one a value. ASCII: a name may hold half a pair."""
