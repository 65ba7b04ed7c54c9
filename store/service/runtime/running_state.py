"""RunningState: whether a store takes writes, and why not.

Source: RocketMQ ``RunningFlags``.
"""

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cqstore.store.concurrency.checked_lock import LockOrder
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    STALLING,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreStateError,
)
from cqstore.store.progress import noop
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.runtime import _flags

_LOG = StoreLogger(__name__)


class RunningState(_flags.StateFlags):
    """The state of one store. Any thread may read and set it.

    Failed, closed and forked are final; only a full disk may have room again. One that is
    nearly full forbids puts alone. One that has no room for units or keys of records has stalled
    the dispatch, too, as a dispatcher that fails has: batches would pile up in memory.
    """

    def __init__(self, root: Path, *, read_only: bool) -> None:
        self._root = root
        self._read_only = read_only
        self._pid = os.getpid()
        self._lock = threading.RLock()  # guards every change; a signal's handler may make one
        self.closed = False
        self.forked = False
        """This process is a child of the one that opened the store."""
        self.failure: StoreError | None = None
        """The first write or flush that failed."""
        self.on_failed: Callable[[], object] = noop
        """Called behind each failure, by any thread; it never waits."""
        self._disk_full = ""
        self.locks = LockOrder()
        """Those that a call from inside another one of its thread must not wait for."""
        self.stalled = ""
        """Why the dispatch of a batch waits, for room or a dispatcher; empty if it does not."""
        self.unwritable = read_only
        """Whether anything forbids a put: all that a put looks at."""
        _states.add(self)

    # ---- setting

    def close(self) -> None:
        """Refuse every later write and read."""
        with self._lock:
            self.closed = self.unwritable = True

    def fail(self, exc: BaseException) -> StoreError:
        """Take no writes any more; keep and return the first cause, as an error of the store's.

        Another waiter for the same flush may report its failure first. An exception that is no
        error of the store's (an interrupt, a bug) has cut short what must be whole.
        """
        cause = exc.__cause__ if isinstance(exc, StoreFailedError) else exc
        if not isinstance(cause, StoreError):
            cause = exc if isinstance(exc, StoreError) else _cut_short(exc)
        with self._lock:
            if self.failure is None:
                self.failure = cause
            self.unwritable = True
            failure = self.failure
        self.on_failed()
        return failure

    def set_disk_full(self, reason: str) -> None:
        """Take no puts for ``reason``, one sentence; with an empty one take them again."""
        with self._lock:
            changed, self._disk_full = reason != self._disk_full, reason
            self._update()
        if changed:
            _LOG.warning("%s", reason or "the disk has free space again: puts are accepted")

    def set_stalled(self, reason: str) -> None:
        """Take no puts while the dispatch is stalled for ``reason``; empty: it goes on."""
        with self._lock:
            changed, self.stalled = bool(reason) != bool(self.stalled), reason
            self._update()
        if changed and reason:
            _LOG.error("the dispatch is stalled, puts are refused: %s", reason)
        elif changed:
            _LOG.warning("the dispatch continues, puts are accepted")

    def _update(self) -> None:
        """Set ``unwritable``; the caller holds the lock."""
        self.unwritable = bool(self._disk_full or self.stalled) or self._has_ended
        if self._has_ended:  # meanwhile, by a signal's handler or in a child: that is final
            self.unwritable = True

    def leave_to_parent(self) -> None:
        """Be of no use any more: called in a child process, where a lock may be held for ever."""
        self.forked = self.unwritable = True

    # ---- asking

    @property
    def word(self) -> str:
        """Return what the store takes, in a word or two."""
        if self.closed or self.forked:
            return "closed" if self.closed else "closed in this child process"
        if self.failure is not None:
            return "failed"
        if self._read_only:
            return "read-only"
        return "open, puts refused" if self.unwritable else "open"

    @property
    def _has_ended(self) -> bool:
        return self._read_only or self.closed or self.forked or self.failure is not None

    def refuse_put(self) -> PutMessageResult:
        """Raise why the store takes no puts, or return the status of a full disk.

        Source: RocketMQ ``DefaultMessageStore.checkStoreStatus``, which asks ``RunningFlags`` for a
        disk that is nearly full and for errors of queues or index.

        Raises:
            StoreStateError: as for ``check_writable``.
        """
        self.check_writable()
        reason = self.stalled or self._disk_full
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)

    def check_open(self) -> None:
        """Refuse in a child process, and after ``close``.

        Raises:
            StoreStateError: the store was opened by another process, before it forked.
            StoreClosedError: it has been closed.
        """
        if self.forked:
            raise StoreStateError(
                f"the store was opened by process {self._pid}, before the fork. Open it again in"
                " this process",
                path=self._root,
            )
        if self.closed:
            raise StoreClosedError("the store is closed", path=self._root)

    def check_writable(self) -> None:
        """Raise what forbids to write; a disk that is nearly full forbids puts alone.

        Raises:
            StoreStateError, StoreClosedError: as for ``check_open``.
            ReadOnlyStoreError: the store was opened read-only.
            StoreFailedError: an earlier write failed.
        """
        self.check_open()
        if self._read_only:
            raise ReadOnlyStoreError("the store was opened read-only", path=self._root)
        if self.failure is not None:
            raise StoreFailedError(
                f"an earlier write failed, close the store and open it again: {self.failure}",
                path=self._root,
            ) from self.failure

    def end_error(self) -> StoreStateError:
        """Return why nothing comes any more, anew each time: a failure, or that it is closed."""
        try:
            self.check_writable()
        except StoreStateError as exc:
            return exc
        return StoreClosedError("the store is closed", path=self._root)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Refuse where nothing may be written; a failure of the block ends all writing.

        But for what stalls a dispatch: the block can be repeated.

        Raises:
            NestedCallError: the thread holds a lock of the store; nothing was done.
        """
        self.check_writable()
        self.locks.check()
        with self.failing(*STALLING):
            yield

    @contextmanager
    def failing(self, *harmless: type[StoreError]) -> Iterator[None]:
        """Have whatever the block raises end all writing, an interrupt too.

        But for ``harmless`` errors, and for one thing: that a close came before it.
        """
        try:
            yield
        except harmless:
            raise
        except BaseException as exc:
            if not (self.closed and isinstance(exc, StoreClosedError)):
                self.fail(exc)
            raise


class CriticalSection(_flags.EnteredFlag):
    """Steps of which all are done, or the store fails and its next open recovers.

    Begun and ended under one lock. An exception may come between any two lines (a signal's handler
    raises it), also between those that would record the first one. So if ``begun`` is already
    set on entry, an earlier caller was interrupted inside the section.
    """

    __slots__ = ("_state", "_what")

    def __init__(self, state: RunningState, what: str) -> None:
        """``what`` was cut short then, for the error."""
        self._state = state
        self._what = what
        self.begun = False

    def check(self) -> None:
        """Refuse if an earlier caller was interrupted inside the section.

        Raises:
            StoreFailedError: the store has failed by that.
        """
        if self.begun:
            self.fail_if_interrupted()
            self._state.check_writable()

    def fail_if_interrupted(self) -> None:
        """Set the store's failure if an earlier caller was interrupted inside the section."""
        if self.begun:
            self._state.fail(StoreFailedError(f"{self._what} was interrupted"))

    def begin(self) -> None:
        """Note that the steps have begun.

        Raises:
            StoreFailedError: as for ``check``.
        """
        self.check()
        self.begun = True

    def end(self) -> None:
        """Note that the steps have ended: all of them are done, or none."""
        self.begun = False


def _cut_short(exc: BaseException) -> StoreFailedError:
    failure = StoreFailedError(f"a write was interrupted by {exc!r}")
    failure.__cause__ = exc
    return failure


_states: "weakref.WeakSet[RunningState]" = weakref.WeakSet()


def _after_fork() -> None:
    for state in _states:
        state.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
