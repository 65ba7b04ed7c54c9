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
    int poll(pollfd *polled, unsigned long count, int milliseconds)

cdef extern from "sys/socket.h" nogil:
    int MSG_DONTWAIT
    Py_ssize_t recv(int fd, void *into, size_t size, int flags)

cdef enum:
    REPORT = 8  # bytes: a phy offset, big-endian
    RECEIVED_BYTES = 4096  # bytes that are received at once
    TOO_LATE = -2
    NOTHING = -3
    LONGEST = 60000  # milliseconds of one call that waits
    LEASE = 10000  # microseconds after which who has lent looks again; who was lent, after half
    ALONE = 16  # puts one after another of which each waited alone, before hearing is lent


cdef struct Receiver:
    # Of a link. All but ``data`` and ``fd`` is changed under the lock of its links; these by who
    # hears. ``gate`` is taken, but from a call of its thread until that has heard it.
    PyThread_type_lock gate
    int fd
    int alone  # puts that were served last, each of which had waited alone
    bint lent  # its thread sleeps at ``gate``; what ends that is noted first
    int64_t taken  # by a put, which receives
    bint reclaimed  # by its thread, or for it: who has taken it gives it back to that
    int64_t turns  # of puts that have heard
    double received_at  # when something came last
    Py_ssize_t got  # what a put has received, of which it can take nothing; ``NOTHING``
    int fault  # ``errno`` of that
    uint8_t data[RECEIVED_BYTES]


cdef inline void count_alone(Receiver *receiver, Py_ssize_t served, Py_ssize_t left) noexcept nogil:
    """Note how many puts a report served, and how many wait on; under the lock."""
    if served + left > 1:
        receiver.alone = 0
    else:
        receiver.alone += served


cdef inline bint may_be_lent(Receiver *receiver, Py_ssize_t links, Py_ssize_t puts) noexcept nogil:
    """Return whether a put would hear this one, and no other, as soon as it waits; under the lock.

    One that waits already sleeps: it would not hear.
    """
    if links != 1 or puts or receiver.alone < ALONE:
        return False
    receiver.alone = 0
    return True


cdef inline bint may_be_taken(Receiver *receiver) noexcept nogil:
    """Return whether a put may hear now; under the lock."""
    return receiver.lent and not receiver.taken


cdef inline void reclaim(Receiver *receiver) noexcept nogil:
    """Have its thread hear again, at once or when the put is over that hears; under the lock."""
    if may_be_taken(receiver):
        receiver.lent = False
        PyThread_release_lock(receiver.gate)
    receiver.reclaimed = True


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
    Receiver *receiver, double deadline, bint interruptible
) noexcept nogil:
    """Return what ``recv`` does; ``TOO_LATE``: nothing came until ``deadline``, or a signal did."""
    cdef double left
    cdef pollfd polled
    cdef Py_ssize_t got
    cdef int found
    while True:
        left = max(deadline - monotonic(), <double> 0)
        polled.fd, polled.events, polled.revents = receiver.fd, POLLIN, 0
        found = poll(&polled, 1, <int> min(left * 1000 + 1, <double> LONGEST))
        if found > 0:
            got = recv(receiver.fd, receiver.data, RECEIVED_BYTES, MSG_DONTWAIT)
            if got >= 0 or errno != EINTR and errno != EAGAIN:
                return got
        elif found < 0 and errno != EINTR:
            return -1
        elif not left or found < 0 and interruptible:
            return TOO_LATE
