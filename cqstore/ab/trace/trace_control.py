"""TraceControl: starts and stops the traces of one store, and installs their recorder."""

import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cqstore.ab.trace.recorder import DirectReads, RecordedPutter, Recorder
from cqstore.ab.trace.trace import MAX_TRACE_BYTES, Trace
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import StoreConfigError
from cqstore.store.paths import named_path
from cqstore.store.service.message_store import MessageStore, route_calls
from cqstore.store.service.opening.components import StoreComponents, components_of
from cqstore.store.service.reading.read_interceptor import ReadInterceptor
from cqstore.store.service.runtime.watched_thread import Worker
from cqstore.store.service.writing.putter import Puts

Route = Callable[[Puts, ReadInterceptor | None], object]
"""Sets the putter of a store and the interceptor of its reads."""


def record_trace(store: MessageStore, path: Path | str, max_bytes: int = MAX_TRACE_BYTES) -> Trace:
    """Record the operations of an open store in a new file, without bodies.

    The trace ends when it is stopped or left as a context, when the store is closed, or before the
    file exceeds ``max_bytes``. ``cqstore ab run --trace`` replays it. The file holds the names of
    topics and keys, one operation per line, see ``operation_lines``.

    Raises:
        StoreConfigError: the file exists, or another trace of the store is being recorded.
        StoreIOError: the file cannot be made.
        StoreStateError: the store is closed, or this is a child process.
    """
    components = components_of(store)
    components.state.check_open()
    begun: list[Trace] = []
    try:
        control = trace_control_of(components)
        trace = control.record(
            named_path(path), max_bytes, partial(_route, weakref.ref(store)), begun
        )
    except BaseException:
        for each in begun:
            each.stop()
        raise
    return trace  # no call is made in between: the caller has it, or it has been stopped


def trace_control_of(components: StoreComponents) -> "TraceControl":
    """Return the trace control of an open store; closing the store stops its trace."""
    control = components.attached.get(TraceControl)
    if not isinstance(control, TraceControl):
        made = TraceControl(components)
        components.state.locks.add_outer(made.lock)  # first: an interrupt may come in between
        control = components.attached.setdefault(TraceControl, made)
        assert isinstance(control, TraceControl)
    return control


def _route(
    store: "weakref.ref[MessageStore]", putter: Puts, interceptor: ReadInterceptor | None
) -> None:
    """Set what a store calls, unless it was dropped: the thread of a trace does not keep it."""
    if (found := store()) is not None:
        route_calls(found, putter, interceptor)


class TraceControl:
    """The traces of one store, at most one at a time. Any thread may call any method."""

    def __init__(self, components: StoreComponents) -> None:
        self._putter, self._interceptor = components.puts, components.interceptor
        self._reads = DirectReads(components.puller, components.queues)
        self._trace: Trace | None = None
        self._last: Trace | None = None  # the one that was begun last: its end may be cut short
        self.lock = CheckedLock("the start of a trace")

    def record(self, path: Path, max_bytes: int, route: Route, begun: list[Trace]) -> Trace:
        """Start a trace, see ``record_trace``; ``route`` installs its recorder in the store.

        The trace is added to ``begun`` before it records anything: a caller that is interrupted on
        return stops it there.
        """
        with self.lock.entry():
            self._end_last()
            self._last = trace = Trace(path, max_bytes, partial(self._forget, route))
            begun.append(trace)
            self._trace = trace
            recorder = Recorder(trace, self._reads, self._interceptor)
            route(RecordedPutter(trace, self._putter), recorder)
            trace.start()
        return trace

    def _end_last(self) -> None:
        if self._trace is not None and not self._trace.is_ending:
            raise StoreConfigError("a trace is already being recorded", path=self._trace.path)
        self.stop()  # where that was cut short

    def _forget(self, route: Route, trace: Trace) -> None:
        """Stop recording in ``trace``; called by the thread that stops it."""
        if self._trace is trace:
            route(self._putter, self._interceptor)
            self._trace = None  # last: if this is cut short the next call does the rest

    def stop(self) -> None:
        """Stop the latest trace, if there is one. A second call does nothing."""
        if self._last is not None:
            self._last.stop()

    @property
    def worker(self) -> Worker | None:
        """Return the thread that writes the latest trace, or ``None``."""
        return None if self._last is None else self._last.worker
