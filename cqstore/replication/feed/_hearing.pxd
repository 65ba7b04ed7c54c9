# How a connection is heard: by a thread of its own, which lends that to a put that waits alone. Of
# two threads that are woken for each such put one is saved.

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t

from cqstore.store.core._waiters cimport PyThread_release_lock, PyThread_type_lock, monotonic

cdef extern from *:
    """
    #define load_of(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
    #define store_to(place, value) __atomic_store_n(place, value, __ATOMIC_RELEASE)
    """
    int64_t load_of(int64_t *place) noexcept nogil
    void store_to(int64_t *place, int64_t value) noexcept nogil

cdef extern from "poll.h" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    short POLLIN
    int poll(pollfd *asked, unsigned long count, int milliseconds)

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    Py_ssize_t recv(int fd, void *into, size_t size, int flags)

cdef enum:
    REPORT = 8  # bytes: a phy offset, big-endian
    HEARD = 4096  # bytes that are received at once
    TOO_LATE = -2
    NOTHING = -3
    LONGEST = 60000  # milliseconds of one call that waits
    LEASE = 10000  # microseconds after which who has lent looks again; who was lent, after half
    ALONE = 16  # puts one after another of which each waited alone, before hearing is lent


cdef struct Hearing:
    # Of a link. All but ``data`` and ``fd`` is changed under the lock of its links; these by who
    # hears. ``gate`` is taken, but from a call of its thread until that has heard it.
    PyThread_type_lock gate
    int fd
    int alone  # puts that were served last, each of which had waited alone
    bint lent  # its thread sleeps at ``gate``; what ends that is noted first
    int64_t taken  # by a put, which receives
    bint asked_back  # by its thread, or for it: who has taken it gives it back to that
    int64_t turns  # of puts that have heard
    double heard_at  # when something came last
    Py_ssize_t got  # what a put has received, of which it can take nothing; ``NOTHING``
    int fault  # ``errno`` of that
    uint8_t data[HEARD]


cdef inline void count_alone(Hearing *hearing, Py_ssize_t served, Py_ssize_t left) noexcept nogil:
    """Note how many puts a report served, and how many wait on; under the lock."""
    if served + left > 1:
        hearing.alone = 0
    else:
        hearing.alone += served


cdef inline bint may_be_lent(Hearing *hearing, Py_ssize_t links, Py_ssize_t puts) noexcept nogil:
    """Return whether a put would hear this one, and no other, as soon as it waits; under the lock.

    One that waits already sleeps: it would not hear.
    """
    if links != 1 or puts or hearing.alone < ALONE:
        return False
    hearing.alone = 0
    return True


cdef inline bint may_be_taken(Hearing *hearing) noexcept nogil:
    """Return whether a put may hear now; under the lock."""
    return hearing.lent and not hearing.taken


cdef inline void ask_back(Hearing *hearing) noexcept nogil:
    """Have its thread hear again, at once or when the put is over that hears; under the lock."""
    if may_be_taken(hearing):
        hearing.lent = False
        PyThread_release_lock(hearing.gate)
    hearing.asked_back = True


cdef inline int64_t report_at(const uint8_t *at) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int place
    for place in range(REPORT):
        value = value << 8 | at[place]
    return <int64_t> value


cdef inline int by_size(const void *one, const void *other) noexcept nogil:
    cdef int64_t a = (<int64_t *> one)[0]
    cdef int64_t b = (<int64_t *> other)[0]
    return (a > b) - (a < b)


cdef inline Py_ssize_t received(
    Hearing *hearing, double deadline, bint interruptible
) noexcept nogil:
    """Return what ``recv`` does; ``TOO_LATE``: nothing came until ``deadline``, or a signal did."""
    cdef double left
    cdef pollfd asked
    cdef Py_ssize_t got
    cdef int found
    while True:
        left = max(deadline - monotonic(), <double> 0)
        asked.fd, asked.events, asked.revents = hearing.fd, POLLIN, 0
        found = poll(&asked, 1, <int> min(left * 1000 + 1, <double> LONGEST))
        if found > 0:
            got = recv(hearing.fd, hearing.data, HEARD, MSG_DONTWAIT)
            if got >= 0 or errno != EINTR and errno != EAGAIN:
                return got
        elif found < 0 and errno != EINTR:
            return -1
        elif not left or found < 0 and interruptible:
            return TOO_LATE
