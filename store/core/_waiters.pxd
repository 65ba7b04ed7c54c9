# Threads that sleep, each at a gate of its own, and the lines in which they wait. Who keeps a line
# says which lock guards it; the free ones are taken and given back under the interpreter's.

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
    # A thread that sleeps. Never on its stack: a daemon's thread may end in its sleep.
    Waiter *before
    Waiter *behind
    Line *line  # which it is in, NULL: in none
    PyThread_type_lock gate  # taken, but from a call until it is heard
    int64_t phy_offset  # up to where it waits for the log
    int64_t served
    Py_ssize_t followers  # so many are to have the log up to there
    bint called  # not called again until it is awake


cdef struct Line:
    Waiter *first
    Waiter *last
    Py_ssize_t count


cdef inline double monotonic() noexcept nogil:
    """Return seconds of the clock of ``time.monotonic``."""
    cdef timespec read
    clock_gettime(CLOCK_MONOTONIC, &read)
    return read.tv_sec + read.tv_nsec * 1e-9


cdef inline void insert(Line *line, Waiter *before, Waiter *waiter) noexcept nogil:
    """Put one that is in no line into this one, behind ``before``; ``NULL``: as the first."""
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
    """Take one out of its line, if it is in one."""
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
    """Call this one and all behind it; each may be another caller's from then on."""
    cdef Waiter *behind
    while waiter != NULL:
        behind = waiter.behind
        PyThread_release_lock(waiter.gate)
        waiter = behind


cdef inline Waiter *new_waiter(Line *free_ones, int64_t phy_offset) except NULL:
    """Return one that is in no line, a free one if there is any."""
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
