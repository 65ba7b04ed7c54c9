"""ReadInterceptor: intercepts the reads of an open store.

A store without one pays one attribute lookup per read. ``cqstore.interceptors`` is the entry-point
group of installed interceptors, see ``installed_hooks``.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult
from cqstore.store.service.runtime.watched_thread import Worker


class QueueQuestion(NamedTuple):
    """A read of one queue whose answer is a number."""

    op: str
    """``minOffset``, ``maxOffset``, ``timeSearch`` or ``estimate``, as in the lines of a trace."""
    topic: str
    queue_id: int
    arguments: Mapping[str, object]
    """The other arguments, named and ordered as in the lines of a trace."""
    ask: Callable[[ConsumeQueue], int]
    """Returns the answer of a queue, of any backend."""


def min_offset_question(topic: str, queue_id: int) -> QueueQuestion:
    """Ask for the first offset whose record is in the log."""
    return QueueQuestion("minOffset", topic, queue_id, {}, lambda queue: queue.min_offset())


def max_offset_question(topic: str, queue_id: int) -> QueueQuestion:
    """Ask for the next offset."""
    return QueueQuestion("maxOffset", topic, queue_id, {}, lambda queue: queue.max_offset())


def time_question(
    topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
) -> QueueQuestion:
    """Ask for the offset for a time."""
    arguments = {"timestamp": timestamp, "boundary": boundary.value}
    return QueueQuestion(
        "timeSearch", topic, queue_id, arguments,
        lambda queue: queue.offset_by_time(timestamp, boundary),
    )  # fmt: skip


def estimate_question(
    topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
) -> QueueQuestion:
    """Ask how many messages of a range match a filter."""
    arguments = {"from": from_offset, "to": to_offset, "tags": tags.expression}
    return QueueQuestion(
        "estimate", topic, queue_id, arguments,
        lambda queue: queue.estimate_message_count(
            from_offset, to_offset, tags.may_match, tags.fast
        ),
    )  # fmt: skip


class ReadInterceptor(Protocol):
    """Serves reads in place of the store. Any thread may call any method."""

    def samples_this(self) -> bool:
        """Return whether to serve the next read; otherwise the store does."""

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> GetMessageResult:
        """Pull, see ``Puller.get``."""

    def number(self, question: QueueQuestion) -> int:
        """Return the answer to a question."""

    def on_query(self, topic: str, key: str, max_num: int, begin: int, end: int) -> None:
        """Observe a query by key, which the store serves."""

    def on_list_topics(self, prefix: str) -> None:
        """Observe a listing of topics, which the store serves."""


class InterceptorService(Protocol):
    """Service of an upper layer for an open store, such as the owner of an interceptor."""

    @property
    def worker(self) -> Worker | None:
        """Return its thread, which must not close the store; ``None``: not started yet."""

    def stop(self) -> None:
        """End the thread. A second call does nothing, unless the first one was interrupted."""


class InstalledInterceptor(ReadInterceptor, InterceptorService, Protocol):
    """Interceptor of an installed package for one store, from its opening to its close."""

    def start(self) -> None:
        """Start the thread; the store is open."""

    def snapshot(self) -> object:
        """Return the current counts, for ``MetricsSnapshot.interceptor``."""
