"""The rows of ``cqstore usage``."""

from collections.abc import Iterator

from cqstore.broker.topic_kind import TopicKind, topic_kind
from cqstore.broker.usage.owner_usage import Owners, OwnerUsage, UsageBy, total_bytes
from cqstore.broker.usage.queue_usage import Usage
from cqstore.cli.table import Row

_TIMES = ("oldestStoreTimestamp", "newestStoreTimestamp")
COLUMNS = {
    UsageBy.TOPIC: ("topic", "kind", "queues", "units", "bytes", "share", *_TIMES),
    UsageBy.GROUP: (
        "group", "topics", "queues", "units", "bytes", "share", "retryUnits", "retryBytes",
        "deadUnits", "deadBytes", *_TIMES,
    ),
    UsageBy.PARENT: (
        "parent", "kind", "topics", "queues", "units", "bytes", "share", "lightUnits", *_TIMES,
    ),
    UsageBy.DAY: ("day", "queues", "units", "bytes", "share", *_TIMES),
}  # fmt: skip


def usage_rows(owners: Owners, by: UsageBy) -> Iterator[Row]:
    """Yield one row per owner; its share is relative to the bytes of all ``owners``."""
    whole = total_bytes(owners)
    for name, owner in owners.items():
        yield _ROWS[by](name, owner, whole)


def _figures(owner: OwnerUsage, whole: int) -> Row:
    share = round(owner.total.bytes / whole, 6) if whole else 0.0
    return {"units": owner.total.units, "bytes": owner.total.bytes, "share": share}


def _times(owner: OwnerUsage) -> Row:
    seen = Usage()
    seen.add(owner.total)
    seen.add(owner.light)
    return dict(zip(_TIMES, (seen.oldest, seen.newest), strict=True))


def _topic(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    kind = topic_kind(name or "")
    row: dict[str, object] = {"topic": name, "kind": kind.value, "queues": owner.queues}
    if kind is TopicKind.LIGHT:
        row |= {"units": owner.light.units, "bytes": owner.light.bytes, "share": None}
        return {**row, **_times(owner)}
    return {**row, **_figures(owner, whole), **_times(owner)}


def _group(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {
        "group": name, "topics": owner.topics, "queues": owner.queues,
        **_figures(owner, whole), "retryUnits": owner.retry.units,
        "retryBytes": owner.retry.bytes, "deadUnits": owner.dead.units,
        "deadBytes": owner.dead.bytes, **_times(owner),
    }  # fmt: skip


def _parent(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {
        "parent": name, "kind": topic_kind(name or "").value, "topics": owner.topics,
        "queues": owner.queues, **_figures(owner, whole), "lightUnits": owner.light.units,
        **_times(owner),
    }  # fmt: skip


def _day(name: str | None, owner: OwnerUsage, whole: int) -> Row:
    return {"day": name, "queues": owner.queues, **_figures(owner, whole), **_times(owner)}


_ROWS = {UsageBy.TOPIC: _topic, UsageBy.GROUP: _group, UsageBy.PARENT: _parent, UsageBy.DAY: _day}
