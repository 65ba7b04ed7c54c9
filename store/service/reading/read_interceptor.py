"""ReadInterceptor: sees the reads of an open store.

A store without one pays one attribute lookup per read. ``cqstore.interceptors`` is the entry-point
group of installed interceptors, see ``installed_hooks``.
"""

from typing import Protocol

from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult
from cqstore.store.service.runtime.watched_thread import Worker


class ReadInterceptor(Protocol):
    """Answers reads as the store would. Any thread may call any method."""

    def samples_this(self) -> bool:
        """Return whether to answer the next read; otherwise the store does."""

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

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose record is in the log."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Return the offset that a time leads to."""

    def estimate(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of a range match a filter."""

    def on_query(self, topic: str, key: str, max_num: int, begin: int, end: int) -> None:
        """Observe a query by key, which the store answers."""

    def on_list_topics(self, prefix: str) -> None:
        """Observe a listing of topics, which the store answers."""


class InterceptorService(Protocol):
    """Owner of an interceptor that runs for an open store."""

    @property
    def worker(self) -> Worker | None:
        """Return its thread, which may not close the store; ``None``: none has run yet."""

    def stop(self) -> None:
        """End the thread. A second call does nothing, unless the first one was interrupted."""


class InstalledInterceptor(ReadInterceptor, InterceptorService, Protocol):
    """Interceptor that an installed package makes for one store, from its opening to its close."""

    def start(self) -> None:
        """Start the thread; the store is open."""

    def snapshot(self) -> object:
        """Return the counts of now, for ``MetricsSnapshot.interceptor``."""
