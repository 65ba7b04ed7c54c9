"""ReadInterceptor: intercepts the reads of an open store.

A store without one pays one attribute lookup per read. ``cqstore.interceptors`` is the entry-point
group of installed interceptors, see ``installed_hooks``.
"""

from typing import Protocol

from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult
from cqstore.store.service.runtime.watched_thread import Worker


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

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first offset whose record is in the log."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the next offset."""

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp: int, boundary: BoundaryType
    ) -> int:
        """Return the offset for a time."""

    def estimate(
        self, topic: str, queue_id: int, from_offset: int, to_offset: int, tags: TagFilter
    ) -> int:
        """Estimate how many messages of a range match a filter."""

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
