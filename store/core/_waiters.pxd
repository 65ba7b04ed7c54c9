# Sleeping threads, each with its own gate, and the queues in which they wait. The owner of a queue
# defines the lock that guards it; the GIL guards the list of free waiters.

from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "pythread.h":
    ctypedef void *PyThread_type_lock
    ctypedef enum PyLockStatus:
        PY_LOCK_ACQUIRED
        PY_LOCK_INTR
    int WAIT_LOCK, NOWAIT_LOCK
    PyThread_type_lock PyThread_allocate_lock()
    void PyThread_free_lock(PyThread_type_lock lock)
    int PyThread_acquire_lock(PyThread_type_lock lock, int waits) nogil
    void PyThread_release_lock(PyThread_type_lock lock) nogil
    PyLockStatus PyThread_acquire_lock_timed(
        PyThread_type_lock lock, long long microseconds, int interruptible
    ) nogil


cdef struct Waiter:
    # A sleeping thread. Never on its stack: a daemon thread may end while it sleeps.
    Waiter *before
    Waiter *behind
    Line *line  # the queue it is in, NULL: none
    PyThread_type_lock gate  # held, except from a notification until the thread wakes
    int64_t phy_offset  # the log offset that it waits for
    int64_t served
    Py_ssize_t followers  # number of followers that must have the log up to that offset
    bint called  # not notified again until it is awake


cdef struct Line:
    Waiter *first
    Waiter *last
    Py_ssize_t count


cdef inline double monotonic() noexcept nogil:
    """Return the time of ``time.monotonic`` in seconds."""
    cdef timespec read
    clock_gettime(CLOCK_MONOTONIC, &read)
    return read.tv_sec + read.tv_nsec * 1e-9


cdef inline void insert(Line *line, Waiter *before, Waiter *waiter) noexcept nogil:
    """Insert a waiter that is in no queue after ``before``; ``NULL``: as the first."""
    waiter.before = before
    waiter.behind = line.first if before == NULL else before.behind
    waiter.line = line
    if before == NULL:
        line.first = waiter
    else:
        before.behind = waiter
    if waiter.behind == NULL:
        line.last = waiter
    else:
        waiter.behind.before = waiter
    line.count += 1


cdef inline void append(Line *line, Waiter *waiter) noexcept nogil:
    insert(line, line.last, waiter)


cdef inline void remove(Waiter *waiter) noexcept nogil:
    """Remove a waiter from its queue, if it is in one."""
    cdef Line *line = waiter.line
    if line == NULL:
        return
    if waiter.before == NULL:
        line.first = waiter.behind
    else:
        waiter.before.behind = waiter.behind
    if waiter.behind == NULL:
        line.last = waiter.before
    else:
        waiter.behind.before = waiter.before
    waiter.line = NULL
    line.count -= 1


cdef inline void open_gates(Waiter *waiter) noexcept nogil:
    """Notify this waiter and all after it; each may be reused at once by another caller."""
    cdef Waiter *behind
    while waiter != NULL:
        behind = waiter.behind
        PyThread_release_lock(waiter.gate)
        waiter = behind


cdef inline Waiter *new_waiter(Line *free_ones, int64_t phy_offset) except NULL:
    """Return a waiter that is in no queue, a free one if possible."""
    cdef Waiter *waiter = free_ones.first
    if waiter != NULL:
        remove(waiter)
    else:
        waiter = <Waiter *> malloc(sizeof(Waiter))
        if waiter == NULL:
            raise MemoryError
        waiter.gate, waiter.line = PyThread_allocate_lock(), NULL
        if waiter.gate == NULL:
            free(waiter)
            raise MemoryError
        PyThread_acquire_lock(waiter.gate, NOWAIT_LOCK)
    waiter.phy_offset, waiter.served, waiter.called = phy_offset, 0, False
    return waiter


cdef inline void free_waiters(Line *free_ones) noexcept:
    cdef Waiter *waiter
    while free_ones.first != NULL:
        waiter = free_ones.first
        remove(waiter)
        PyThread_free_lock(waiter.gate)
        free(waiter)
