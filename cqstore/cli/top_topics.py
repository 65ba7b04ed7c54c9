"""``cqstore top --by topic``: new messages of each topic between two samples of a log."""

import heapq
from collections.abc import Iterator, Sequence

from cqstore.cli.table import Row
from cqstore.store.log.tail_topics import OTHERS, TopicTraffic
from cqstore.store.service.metrics.watch import WatchSample


def topic_rows(look: WatchSample, before: WatchSample | None, limit: int) -> Iterator[Row]:
    """Yield one row per topic, the busiest first, and one for all others.

    The busiest topic received the most messages, then the most bytes. The first sample has no rows.
    """
    seconds = _seconds(look, before)
    if look.topics is None or seconds <= 0:
        return
    traffic = dict(look.topics)
    others = traffic.pop(OTHERS, TopicTraffic())
    total = sum((each.bytes for each in traffic.values()), others.bytes)
    shown = heapq.nsmallest(limit, traffic.items(), lambda row: (-row[1][0], -row[1][1], row[0]))
    for topic, _ in shown:
        yield _row(topic, traffic.pop(topic), seconds, total)
    records = sum((each.records for each in traffic.values()), others.records)
    if records:
        size = sum((each.bytes for each in traffic.values()), others.bytes)
        yield _row(OTHERS, TopicTraffic(records, size), seconds, total)


def topic_notes(look: WatchSample, before: WatchSample | None) -> Sequence[str]:
    """Return a note that no message arrived since the previous sample, if so."""
    seconds = _seconds(look, before)
    return [f"no messages arrived in {seconds:.1f} s"] if seconds > 0 and not look.topics else ()


def _seconds(look: WatchSample, before: WatchSample | None) -> float:
    return 0.0 if before is None else look.seconds - before.seconds


def _row(topic: str, traffic: TopicTraffic, seconds: float, total: int) -> Row:
    return {
        "topic": topic, "messages": traffic.records,
        "perSecond": round(traffic.records / seconds, 1),
        "bytes": traffic.bytes, "bytesPerSecond": round(traffic.bytes / seconds),
        "share": round(traffic.bytes / max(total, 1), 4),
    }  # fmt: skip
