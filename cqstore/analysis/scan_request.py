"""The request of a scan: plain values, checked before a store is opened."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from cqstore.store.errors import StoreConfigError
from cqstore.store.service.reading.store_times import ALL, Time, TimeRange, time_range
from cqstore.store.service.reading.topic_reader import TopicDamage

OnScanDamage = Callable[[str, TopicDamage], object]
"""Called with a topic and its skipped damage; queue id -1 if it is not dispatched yet."""


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The rows and columns of one scan."""

    columns: tuple[str, ...]
    topics: tuple[str, ...] | None = None
    """``None``: all."""
    queue_ids: frozenset[int] | None = None
    """``None``: all."""
    times: TimeRange = ALL
    on_damage: OnScanDamage | None = None
    """``None``: damage is raised."""

    def takes_queue(self, queue_id: int) -> bool:
        """Return whether a queue is requested."""
        return self.queue_ids is None or queue_id in self.queue_ids


def scan_request(
    known: Sequence[str],
    columns: Collection[str] | None,
    topic: str | Collection[str] | None,
    queue_ids: Collection[int] | None,
    begin: Time | None,
    end: Time | None,
    on_damage: OnScanDamage | None,
) -> ScanRequest:
    """Return the request for a table that has the ``known`` columns.

    Raises:
        StoreConfigError: a column, topic or queue id is invalid; or the times are in wrong order.
        RefusedStoreError: a time is invalid, or probably not in ms.
    """
    times = time_range(begin, end)
    for queue_id in queue_ids or ():
        if type(queue_id) is not int or queue_id < 0:
            raise StoreConfigError(f"queue_ids: invalid queue id {queue_id!r}")
    ids = None if queue_ids is None else frozenset(queue_ids)
    return ScanRequest(_chosen(known, columns), _topics(topic), ids, times, on_damage)


def _chosen(known: Sequence[str], columns: Collection[str] | None) -> tuple[str, ...]:
    """Return the columns to read.

    Raises:
        StoreConfigError: a column does not exist, or is given twice.
    """
    if columns is None:
        return tuple(known)
    if isinstance(columns, str):
        raise StoreConfigError(f"columns must be a list of names, not {columns!r}")
    for name in columns:
        if name not in known:
            raise StoreConfigError(f"no column {name!r}; columns: {', '.join(known)}")
    if not columns or len(set(columns)) != len(columns):
        raise StoreConfigError("columns must have at least one name, and no name twice")
    return tuple(columns)


def _topics(topic: str | Collection[str] | None) -> tuple[str, ...] | None:
    """Return the topics to read, sorted; ``None``: all.

    Raises:
        StoreConfigError: a topic is not a string.
    """
    if topic is None:
        return None
    names = [topic] if isinstance(topic, str) else [*topic]
    for name in names:
        if not isinstance(name, str):
            raise StoreConfigError(f"topic: invalid name {name!r}")
    return tuple(sorted({*names}))
