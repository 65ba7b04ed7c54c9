"""RunningState: whether a store accepts writes, and why not.

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

    Failed, closed and forked are final; a full disk may get space again. A nearly full disk forbids
    only puts. A disk without space for units or keys of records also stalls the dispatch, as a
    failing dispatcher does: batches would pile up in memory.
    """

    def __init__(self, root: Path, *, read_only: bool, log_writer: str = "") -> None:
        """``log_writer``: why the log must not be written although the queues are; or empty."""
        self._root = root
        self._read_only = read_only
        self._log_writer = log_writer
        self._pid = os.getpid()
        self._lock = threading.RLock()  # guards every change; a signal handler may make one
        self.closed = False
        self.forked = False
        """This process is a child of the one that opened the store."""
        self.failure: StoreError | None = None
        """The first write or flush that failed."""
        self.on_failed: Callable[[], object] = noop
        """Called after each failure, by any thread; must not wait."""
        self._disk_full = ""
        self.locks = LockOrder()
        """Locks for which a nested call of the same thread must not wait."""
        self.stalled = ""
        """Why the dispatch waits for space or a dispatcher; empty if it does not."""
        self.unwritable = read_only or bool(log_writer)
        """Whether puts are forbidden for any reason: the only flag that a put checks."""
        _states.add(self)

    # ---- setting

    def close(self) -> None:
        """Refuse every later write and read."""
        with self._lock:
            self.closed = self.unwritable = True

    def fail(self, exc: BaseException) -> StoreError:
        """Refuse all further writes; keep and return the first cause, as a ``StoreError``.

        Another thread waiting for the same flush may report its failure first. Any other exception
        (an interrupt, a bug) has interrupted steps that must be done completely.
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
        """Refuse puts for ``reason``, one sentence; if it is empty, accept them again."""
        with self._lock:
            changed, self._disk_full = reason != self._disk_full, reason
            self._update()
        if changed:
            _LOG.warning("%s", reason or "the disk has free space again: puts are accepted")

    def set_stalled(self, reason: str) -> None:
        """Refuse puts while the dispatch is stalled for ``reason``; empty: it continues."""
        with self._lock:
            changed, self.stalled = bool(reason) != bool(self.stalled), reason
            self._update()
        if changed and reason:
            _LOG.error("the dispatch is stalled, puts are refused: %s", reason)
        elif changed:
            _LOG.warning("the dispatch continues, puts are accepted")

    def _update(self) -> None:
        """Set ``unwritable``; the caller holds the lock."""
        is_refused = bool(self._disk_full or self.stalled or self._log_writer)
        self.unwritable = is_refused or self._has_ended
        if self._has_ended:  # meanwhile, by a signal handler or in a child: that is final
            self.unwritable = True

    def leave_to_parent(self) -> None:
        """Refuse all calls: called in a child process, where a lock may be held forever."""
        self.forked = self.unwritable = True

    # ---- checks

    @property
    def word(self) -> str:
        """Return the state in a word or two."""
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
        """Raise the reason for refusing puts, or return the status of a full disk.

        Source: RocketMQ ``DefaultMessageStore.checkStoreStatus``, which checks ``RunningFlags`` for
        a nearly full disk and for errors of queues or index.

        Raises:
            StoreStateError: as for ``check_log_writable``.
        """
        self.check_log_writable()
        reason = self.stalled or self._disk_full
        return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, reason=reason)

    def check_open(self) -> None:
        """Refuse in a child process, and after ``close``.

        Raises:
            StoreStateError: the store was opened by another process, before it forked.
            StoreClosedError: the store has been closed.
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
        """Raise the reason for refusing writes; a nearly full disk forbids only puts.

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

    def check_log_writable(self) -> None:
        """Raise the reason for refusing puts, bytes of another log, and the expiry of log files.

        Raises:
            StoreStateError: as for ``check_writable``.
            ReadOnlyStoreError: the store was opened to move its queues, and its log is replicated.
        """
        self.check_writable()
        if self._log_writer:
            raise ReadOnlyStoreError(
                f"the log of this store is not written: {self._log_writer}", path=self._root
            )

    def end_error(self) -> StoreStateError:
        """Return a new error with the reason why nothing arrives any more: failed or closed."""
        try:
            self.check_writable()
        except StoreStateError as exc:
            return exc
        return StoreClosedError("the store is closed", path=self._root)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Refuse if writing is not allowed; an exception in the block ends all writing.

        Except for errors that stall a dispatch: the block can be repeated.

        Raises:
            NestedCallError: the thread holds a lock of the store; nothing was done.
        """
        self.check_writable()
        self.locks.check()
        with self.failing(*STALLING):
            yield

    @contextmanager
    def failing(self, *harmless: type[StoreError]) -> Iterator[None]:
        """Let any exception in the block end all writing, including an interrupt.

        Except for ``harmless`` errors, and if the store was closed before.
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
    """A section in which all steps are done, or the store fails and its next open recovers.

    Begun and ended under one lock. An exception may occur between any two lines (raised by a signal
    handler), also between those that would record the first one. So if ``begun`` is already set on
    entry, an earlier caller was interrupted inside the section.
    """

    __slots__ = ("_state", "_what")

    def __init__(self, state: RunningState, what: str) -> None:
        """``what`` is the interrupted operation, for the error."""
        self._state = state
        self._what = what
        self.begun = False

    def check(self) -> None:
        """Refuse if an earlier caller was interrupted inside the section.

        Raises:
            StoreFailedError: the store has failed because of the interruption.
        """
        if self.begun:
            self.fail_if_interrupted()
            self._state.check_writable()

    def fail_if_interrupted(self) -> None:
        """Set the store's failure if an earlier caller was interrupted inside the section."""
        if self.begun:
            self._state.fail(StoreFailedError(f"{self._what} was interrupted"))

    def begin(self) -> None:
        """Record that the steps have begun.

        Raises:
            StoreFailedError: as for ``check``.
        """
        self.check()
        self.begun = True

    def end(self) -> None:
        """Record that the steps have ended: all of them are done, or none."""
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
