# Receives the reports of a connection: in its own thread, which lends the task to a put that waits
# alone. That saves one of the two thread wake-ups per put.

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
    LONGEST = 60000  # maximum milliseconds of one blocking call
    LEASE = 10000  # microseconds until the lending thread checks; a borrowing put stops at half
    ALONE = 16  # consecutive puts that waited alone, before receiving is lent


cdef struct Receiver:
    # Receiving state of a link. Changed under the lock of its links, but ``data`` and ``fd`` by the
    # receiving thread. ``gate`` is held, except between a wake-up of its thread and its reaction.
    PyThread_type_lock gate
    int fd
    int alone  # number of last served puts that each waited alone
    bint lent  # its thread sleeps at ``gate``; cleared before the thread is woken
    int64_t taken  # a put is receiving
    bint reclaimed  # a put that has taken it must give it back to the thread
    int64_t turns  # number of times that a put has received
    double received_at  # time of the last received bytes
    Py_ssize_t got  # result of a put's ``recv`` that it cannot process, or ``NOTHING``
    int fault  # ``errno`` of that call
    uint8_t data[RECEIVED_BYTES]


cdef inline void count_alone(Receiver *receiver, Py_ssize_t served, Py_ssize_t left) noexcept nogil:
    """Count the puts served by a report; ``left`` puts still wait. Under the lock."""
    if served + left > 1:
        receiver.alone = 0
    else:
        receiver.alone += served


cdef inline bint may_be_lent(Receiver *receiver, Py_ssize_t links, Py_ssize_t puts) noexcept nogil:
    """Return whether the next put that waits could receive for this link alone; under the lock.

    A put that is already waiting sleeps, so it would not receive.
    """
    if links != 1 or puts or receiver.alone < ALONE:
        return False
    receiver.alone = 0
    return True


cdef inline bint may_be_taken(Receiver *receiver) noexcept nogil:
    """Return whether a put may receive now; under the lock."""
    return receiver.lent and not receiver.taken


cdef inline void reclaim(Receiver *receiver) noexcept nogil:
    """Make the thread receive again, at once or after the put that is receiving. Under the lock."""
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
    """Return the result of ``recv``; ``TOO_LATE``: timed out at ``deadline``, or interrupted."""
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
