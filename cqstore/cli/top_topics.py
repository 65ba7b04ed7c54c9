"""``cqstore top --by topic``: new messages of each topic between two samples of a log."""

import heapq
from collections.abc import Iterator, Sequence

from cqstore.cli.table import Row
from cqstore.store.log.tail_topics import OTHERS, Came
from cqstore.store.service.metrics.watch import WatchSample


def topic_rows(look: WatchSample, before: WatchSample | None, limit: int) -> Iterator[Row]:
    """Yield a row a topic, the busiest first, and one for all others; none in a first look.

    Busiest is what the most messages came to, of as many the most bytes.
    """
    seconds = _seconds(look, before)
    if look.topics is None or seconds <= 0:
        return
    came = dict(look.topics)
    others = came.pop(OTHERS, Came())
    total = sum((each.bytes for each in came.values()), others.bytes)
    shown = heapq.nsmallest(limit, came.items(), lambda row: (-row[1][0], -row[1][1], row[0]))
    for topic, _ in shown:
        yield _row(topic, came.pop(topic), seconds, total)
    records = sum((each.records for each in came.values()), others.records)
    if records:
        size = sum((each.bytes for each in came.values()), others.bytes)
        yield _row(OTHERS, Came(records, size), seconds, total)


def topic_notes(look: WatchSample, before: WatchSample | None) -> Sequence[str]:
    """Return why there is no row: no message arrived since the previous sample."""
    seconds = _seconds(look, before)
    return [f"no messages arrived in {seconds:.1f} s"] if seconds > 0 and not look.topics else ()


def _seconds(look: WatchSample, before: WatchSample | None) -> float:
    return 0.0 if before is None else look.seconds - before.seconds


def _row(topic: str, came: Came, seconds: float, total: int) -> Row:
    return {
        "topic": topic, "messages": came.records, "perSecond": round(came.records / seconds, 1),
        "bytes": came.bytes, "bytesPerSecond": round(came.bytes / seconds),
        "share": round(came.bytes / max(total, 1), 4),
    }  # fmt: skip
