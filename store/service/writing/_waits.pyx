# cython: language_level=3
"""DiskWaits: the threads that wait for the next sync of one log, and the leader that does it.

And the object of a put for which no thread waits. All of it runs under the GIL, without Python
code: no signal handler, no garbage collection and no other thread intervenes between two lines
here. Exceptions are ``sync``, which may raise any exception, and a handler that raises while its
thread sleeps: when that thread leaves, it lets the others continue.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY
from libc.stdint cimport int64_t

from concurrent.futures import InvalidStateError

from cqstore.store.core._waiters cimport (
    NOWAIT_LOCK,
    PY_LOCK_ACQUIRED,
    Line,
    PyLockStatus,
    PyThread_acquire_lock,
    PyThread_acquire_lock_timed,
    PyThread_release_lock,
    PyThread_type_lock,
    Waiter,
    append,
    free_waiters,
    monotonic,
    new_waiter,
    remove,
)

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.service.results import PutMessageStatus

cdef extern from "pythread.h":
    unsigned long PyThread_get_thread_ident()

cdef enum:
    MAX_SKIPPED = 64  # limit of syncs

_LOG = StoreLogger("store.service.writing.ack_waiter")
cdef object _OK = PutMessageStatus.PUT_OK
cdef object _NOT_DURABLE = PutMessageStatus.FLUSH_DISK_TIMEOUT
cdef object _NOT_REPLICATED = PutMessageStatus.FLUSH_SLAVE_TIMEOUT

cdef void _call(Waiter *waiter) noexcept:
    if waiter != NULL and not waiter.called:
        waiter.called = True
        PyThread_release_lock(waiter.gate)


cdef class DiskWaits:
    """The waiters for the syncs of one log. Any thread.

    ``log._flushed`` is the offset up to which it is durable; ``sync`` makes it durable up to its
    current end. It returns for how many seconds the next sync waits for the threads that were
    served, counted from when the last of them was notified. The leader holds the lock ``leading``,
    and must not call these methods meanwhile. Every ``look_again`` seconds a sleeping thread checks
    for signal handlers to run.
    """

    cdef object _log, _sync, _take, _let_go
    cdef Line _waiting  # waiters for the next sync
    cdef Line _served  # not notified yet
    cdef Line _free  # waiters not in use
    cdef bint _led  # a leader syncs
    cdef Py_ssize_t _wanted  # number of threads expected, as many as last time
    cdef double _patience, _until  # and how long to wait for them
    cdef double _look_again
    cdef int _skipped, _to_skip  # syncs without waiting for other threads, which did not arrive

    def __init__(self, log, sync, leading, *, look_again=0.1):
        self._log, self._sync, self._look_again = log, sync, look_again
        self._take, self._let_go = leading.acquire, leading.release

    def __dealloc__(self):
        free_waiters(&self._free)

    @property
    def waiting(self):
        """Return how many threads sleep until they are served."""
        return self._waiting.count

    @property
    def expected(self):
        """Return how many threads the next sync waits for; 0 or 1: for no other."""
        return self._wanted

    def wait(self, int64_t phy_offset, double seconds):
        """Return once the log is durable up to ``phy_offset``, or False after ``seconds``.

        A caller that finds no leader syncs for all, however long that takes.

        Raises:
            BaseException: an exception of ``sync``, or of a signal handler during a sleep.
        """
        cdef Waiter *mine
        cdef double deadline
        if self._is_durable(phy_offset):
            return True
        deadline = monotonic() + seconds
        if self._is_to_lead(1, deadline):
            self._lead()
            return True
        mine = new_waiter(&self._free, phy_offset)
        append(&self._waiting, mine)
        try:
            if not self._sleep(mine, deadline):
                return mine.served != 0 or self._is_durable(phy_offset)
            remove(mine)
            self._lead()
            return True
        finally:
            self._leave(mine)

    cdef bint _is_durable(self, int64_t phy_offset) except -1:
        return <int64_t> self._log._flushed >= phy_offset

    cdef bint _is_to_lead(self, int more, double deadline) except -1:
        """Return whether a sync is due and there is no leader."""
        if self._led:
            return False
        if self._wanted <= 1 or deadline == INFINITY:
            return True
        if self._waiting.count + more >= self._wanted:
            self._to_skip //= 2
            return True
        if monotonic() < self._until <= deadline:
            return False
        if self._waiting.count:  # the last leader waited in vain
            self._to_skip = min(2 * self._to_skip + 1, <int> MAX_SKIPPED)
        return True

    cdef bint _sleep(self, Waiter *mine, double deadline) except -1:
        """Return True if it is this thread's turn to lead, False if it is served or late."""
        cdef double now, patience
        cdef PyThread_type_lock gate = mine.gate
        cdef int64_t microseconds
        cdef PyLockStatus status
        while not mine.served:
            if self._is_to_lead(0, deadline):
                return True
            now = monotonic()
            patience = min(deadline - now, self._look_again)
            if not self._led and mine == self._waiting.first:
                patience = min(patience, self._until - now)
            if now >= deadline:
                return False
            microseconds = <int64_t> (max(patience, 0) * 1e6) + 1
            with nogil:
                status = PyThread_acquire_lock_timed(gate, microseconds, 1)
            if status == PY_LOCK_ACQUIRED:
                mine.called = False
            if mine.served:
                self._call_next()
            if status != PY_LOCK_ACQUIRED:
                PyErr_CheckSignals()
        return False

    cdef int _lead(self) except -1:
        cdef double patience = -1  # the value for a failed sync
        self._led = True
        try:
            self._take()  # free without another leader, and no handler runs
            try:
                patience = self._sync()
            finally:
                self._let_go()
        finally:
            self._hand_over(patience)
        return 0

    cdef int _hand_over(self, double patience) except -1:
        """Complete the waiters that are served, and let the others continue."""
        cdef Waiter *waiter = self._waiting.first
        cdef Waiter *behind
        cdef Py_ssize_t there = self._waiting.count + 1
        cdef int64_t durable
        self._led = False
        self._wanted = 0
        durable = self._log._flushed
        while waiter != NULL:
            behind = waiter.behind
            if waiter.phy_offset <= durable:
                remove(waiter)
                waiter.served = 1
                append(&self._served, waiter)
            waiter = behind
        if patience > 0 and self._skipped >= self._to_skip:
            self._skipped, self._wanted, self._patience = 0, there, patience
        elif patience > 0:
            self._skipped += 1
        _call(self._waiting.first)
        self._call_next()
        return 0

    cdef void _call_next(self) noexcept:
        """Notify a served waiter, which notifies the next one: no contention for the GIL."""
        cdef Waiter *waiter = self._served.first
        self._until = monotonic() + self._patience  # no put arrives before the notification
        if waiter != NULL:
            remove(waiter)
            _call(waiter)

    cdef void _leave(self, Waiter *mine) noexcept:
        """Remove the waiter, also after a handler raised an exception in the sleep."""
        remove(mine)
        if mine.called:  # and has not woken since
            PyThread_acquire_lock(mine.gate, NOWAIT_LOCK)
            self._call_next()
        if not self._led:
            _call(self._waiting.first)
        append(&self._free, mine)


cdef class LaterAnswer:
    """A put that waits for the disk, and then for followers; the notifying thread advances it.

    That thread has others to notify: no exception is raised there. ``not_ok`` is called with any
    status other than ``ok``.
    """

    cdef readonly object phy_offset
    cdef object _result, _promised, _replicas, _not_ok
    cdef bint _is_durable

    def __cinit__(self, result, promised, replicas, not_ok):
        self._result, self._promised = result, promised
        self._replicas, self._not_ok = replicas, not_ok
        appended = result.appended  # a refused put waits for nothing
        self.phy_offset = appended.phy_offset + appended.size

    def set_result(self, there, /):
        """Take the result of the wait for the disk, and at the second call that for followers."""
        try:
            self.goes_on(there)
        except BaseException as exc:  # otherwise the waiter would never return
            self.set_exception(exc)

    cpdef goes_on(self, there=True):
        """Start the next wait, or complete the put."""
        if self._is_durable:
            self._complete(_OK if there else _NOT_REPLICATED)
        elif not there:
            self._complete(_NOT_DURABLE)
        elif self._replicas is None:
            self._complete(_OK)
        else:
            self._is_durable = True
            self._replicas.when_replicated(self.phy_offset, self)

    def set_exception(self, exc, /):
        """Take the error that kept the log from the disk."""
        try:
            self._promised.set_exception(exc)
        except InvalidStateError:  # the caller's future, which the caller may have completed
            _LOG.warning("a put had been answered before: %s", exc)

    cdef int _complete(self, status) except -1:
        result = self._result
        if status is not _OK:
            self._not_ok(status)
        if status is not result.status:
            result = result._replace(status=status)
        if type(self._promised) is AwaitedPut:
            (<AwaitedPut> self._promised).take(result)
        else:
            self._promised.set_result(result)
        return 0


cdef class AwaitedPut:
    """One put of a loop's task, completed by the loop's thread at once, or by another.

    Its completion makes the loop continue the task.
    """

    cdef public object future
    """The future that the task awaits; none if there was a result before, or after an interrupt."""
    cdef readonly bint is_notified
    """Whether the loop's thread has the result."""
    cdef object _of, _result, _exception

    def __cinit__(self, of):
        self._of = of

    def set_result(self, result, /):
        """Take the result."""
        self.take(result)

    def set_exception(self, exception, /):
        """Take the exception."""
        self._exception = exception
        self._notify()

    cdef int take(self, result) except -1:
        self._result = result
        return self._notify()

    cdef int _notify(self) except -1:
        if self.future is None and PyThread_get_thread_ident() == <unsigned long> self._of.thread:
            self.is_notified = True
        else:
            self._of.complete_soon(self)
        return 0

    def answer(self):
        """Return the result.

        Raises:
            BaseException: the exception of the put.
        """
        if self._result is None:
            raise self._exception
        return self._result
