"""TraceControl: begins and ends the traces of one store, and puts their recorder in its way."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import StoreConfigError
from cqstore.store.service.reading.read_interceptor import DirectReads, ReadInterceptor
from cqstore.store.service.tracing.recorder import RecordedPutter, Recorder
from cqstore.store.service.tracing.trace import Trace
from cqstore.store.service.writing.putter import Puts

Route = Callable[[Puts, ReadInterceptor | None, Trace | None], object]
"""Sets whom a store asks to put, who intercepts its reads, and which trace notes the rest."""


class TraceControl:
    """At most one trace is recorded at a time. Any thread may call any method."""

    def __init__(self, putter: Puts, reads: DirectReads, mirror: ReadInterceptor | None) -> None:
        """Without a trace the store puts by ``putter``, and ``mirror`` intercepts its reads."""
        self._putter, self._reads, self._mirror = putter, reads, mirror
        self._trace: Trace | None = None
        self._last: Trace | None = None  # the one that was begun last: its end may be cut short
        self.lock = CheckedLock("the begin of a trace")

    def record(self, path: Path, max_bytes: int, route: Route, begun: list[Trace]) -> Trace:
        """Begin a trace, see ``MessageStore.record_trace``; ``route`` sets what the store asks.

        It is in ``begun`` before it takes anything: a caller that is interrupted on the way back
        stops it there.
        """
        with self.lock.entry():
            self._end_last()
            self._last = trace = Trace(path, max_bytes, partial(self._forget, route))
            begun.append(trace)
            self._trace = trace
            recorder = Recorder(trace, self._reads, self._mirror)
            route(RecordedPutter(trace, self._putter), recorder, trace)
            trace.start()
        return trace

    def _end_last(self) -> None:
        if self._trace is not None and not self._trace.is_ending:
            raise StoreConfigError("a trace is being recorded already", path=self._trace.path)
        self.stop()  # where that was cut short

    def _forget(self, route: Route, trace: Trace) -> None:
        """Note nothing in ``trace`` any more; called by the thread that ends it."""
        if self._trace is trace:
            route(self._putter, self._mirror, None)
            self._trace = None  # last: if this is cut short the next call does the rest

    def stop(self) -> None:
        """End the trace that was begun last, if there is one. A second call does nothing."""
        if self._last is not None:
            self._last.stop()

    def refuse_own_thread(self) -> None:
        """Refuse what waits for the end of a trace, in the thread that writes it.

        Raises:
            NestedCallError: the caller is that thread.
        """
        if self._last is not None:
            self._last.worker.refuse_itself()
