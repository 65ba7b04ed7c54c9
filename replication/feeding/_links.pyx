# cython: language_level=3
"""Links: the connections of a store's followers, what each has, and the puts that wait for it.

A thread hears a follower without the interpreter's lock, and wakes the threads whose puts it
serves. What they share lies under a native lock; no line of Python runs under that one. A waiter
is taken from, and given back to, those that are free under the interpreter's lock.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, qsort, realloc

import os

from store.core._waiters cimport (
    PY_LOCK_ACQUIRED,
    WAIT_LOCK,
    Line,
    PyLockStatus,
    PyThread_acquire_lock,
    PyThread_acquire_lock_timed,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_release_lock,
    PyThread_type_lock,
    Waiter,
    append,
    free_waiters,
    insert,
    monotonic,
    new_waiter,
    remove,
)

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
    HEARD = 4096
    TOO_LATE = -2
    LOOK_AGAIN = 1000000  # microseconds
    LONGEST = 60000  # milliseconds of one call that waits
    NOT_SAID = -1


cdef struct State:
    # Of a link. Changed under the lock of its links, but for ``sent``; read by any thread.
    int64_t position
    int64_t start
    int64_t sent
    int64_t acknowledged
    Py_ssize_t slot  # in ``best``: those of one address have the same


cdef inline int64_t _report(const uint8_t *at) noexcept nogil:
    cdef unsigned long long value = 0
    cdef int place
    for place in range(REPORT):
        value = value << 8 | at[place]
    return <int64_t> value


cdef int _by_size(const void *one, const void *other) noexcept nogil:
    cdef int64_t a = (<int64_t *> one)[0]
    cdef int64_t b = (<int64_t *> other)[0]
    return (a > b) - (a < b)


cdef class Link:
    """One connection of a follower. Any thread may read; its links alone change it, but ``sent``."""

    cdef State state
    cdef readonly str address
    cdef readonly int port

    def __cinit__(
        self, str address, int port, int64_t position=NOT_SAID, int64_t start=NOT_SAID,
        int64_t sent=NOT_SAID, int64_t acknowledged=NOT_SAID,
    ):
        self.address, self.port = address, port
        self.state.position, self.state.start = position, start
        self.state.sent, self.state.acknowledged = sent, acknowledged
        self.state.slot = -1

    @property
    def position(self):
        """Return up to where it says that it has the log: what it asked for, then acknowledged."""
        return load_of(&self.state.position)

    @property
    def start(self):
        """Return from where on it is sent the log."""
        return load_of(&self.state.start)

    @property
    def sent(self):
        """Return up to where it was sent the log; set by who has the turn to send."""
        return load_of(&self.state.sent)

    @sent.setter
    def sent(self, int64_t phy_offset):
        store_to(&self.state.sent, phy_offset)

    @property
    def acknowledged(self):
        """Return up to where it says that it has what it was sent; its request says nothing."""
        return load_of(&self.state.acknowledged)


cdef class Links:
    """The links of one store, and who waits for them. Any thread."""

    cdef PyThread_type_lock _lock
    cdef list _links
    cdef State **_states  # of ``_links``
    cdef int64_t *_best  # scratch, a place for each slot
    cdef Py_ssize_t _count, _room, _slots
    cdef Line _waiting  # by phy offset
    cdef Line _free  # waiters not in use

    def __cinit__(self):
        self._links = []
        self._lock = PyThread_allocate_lock()
        if self._lock == NULL:
            raise MemoryError

    def __dealloc__(self):
        free_waiters(&self._free)
        free(self._states)
        free(self._best)
        if self._lock != NULL:
            PyThread_free_lock(self._lock)

    @property
    def waiting(self):
        """Return how many puts wait."""
        cdef Py_ssize_t count
        self._acquire()
        count = self._waiting.count
        self._release()
        return count

    def links(self):
        """Return the connections there are."""
        return list(self._links)

    # ---- what feeders report

    def join(self, Link link):
        """Note a connection."""
        if self._count == self._room:
            self._make_room(max(2 * self._room, 8))
        slot = self._slot(link.address)
        self._links.append(link)  # the last that may fail
        self._acquire()
        link.state.slot = slot
        self._states[self._count] = &link.state
        self._count += 1
        self._slots = max(self._slots, slot + 1)
        self._release()

    cdef int _make_room(self, Py_ssize_t room) except -1:
        self._acquire()
        states = <State **> realloc(self._states, room * sizeof(State *))
        self._states = self._states if states == NULL else states
        best = <int64_t *> realloc(self._best, room * sizeof(int64_t))
        self._best = self._best if best == NULL else best
        if states != NULL and best != NULL:
            self._room = room
        self._release()
        if self._room < room:
            raise MemoryError
        return 0

    cdef Py_ssize_t _slot(self, str address) except -1:
        """Return the slot of an address: that of its other links, or the first that is free."""
        taken = set()
        for other in self._links:
            if (<Link> other).address == address:
                return (<Link> other).state.slot
            taken.add((<Link> other).state.slot)
        slot = 0
        while slot in taken:
            slot += 1
        return slot

    def leave(self, Link link):
        """Forget a connection, if it is there; what it acknowledged counts no more."""
        cdef Py_ssize_t at
        for at in range(self._count):
            if self._states[at] == &link.state:
                self._acquire()
                self._count -= 1
                for at in range(at, self._count):
                    self._states[at] = self._states[at + 1]
                self._release()
                self._links.remove(link)
                return

    def begin(self, Link link, int64_t request, int64_t start):
        """Note that it asked for ``request``, and is served from ``start`` on."""
        self._acquire()
        store_to(&link.state.position, request)
        store_to(&link.state.start, start)
        store_to(&link.state.sent, start)
        self._release()

    def acknowledge(self, Link link, int64_t phy_offset):
        """Note that it has what it was sent, up to ``phy_offset``; the caller has checked that."""
        with nogil:
            self._acknowledge(&link.state, phy_offset)

    def hear(self, Link link, int fd, double patience):
        """Take whole reports of what it was sent, as they come, until something else comes.

        Returns what came then, nothing of it taken; empty: it has closed the connection.

        Raises:
            TimeoutError: nothing came for ``patience`` seconds.
            OSError: the connection is of no more use.
        """
        cdef uint8_t into[HEARD]
        cdef Py_ssize_t got
        cdef int fault
        with nogil:
            while True:
                got = _received(fd, into, patience)
                fault = errno
                if got <= 0 or not self._take(&link.state, into, got):
                    break
        if got == TOO_LATE:
            raise TimeoutError
        if got < 0:
            raise OSError(fault, os.strerror(fault))
        return <bytes> into[:got]

    cdef bint _take(self, State *state, const uint8_t *data, Py_ssize_t size) noexcept nogil:
        """Take reports that rise, and lie within what was sent; return whether they are such."""
        cdef int64_t last = max(load_of(&state.position), <int64_t> 0)
        cdef int64_t phy_offset
        cdef Py_ssize_t at
        if size % REPORT:
            return False
        for at in range(size // REPORT):
            phy_offset = _report(data + at * REPORT)
            if phy_offset < last:
                return False
            last = phy_offset
        if last > load_of(&state.sent):
            return False
        self._acknowledge(state, last)
        return True

    cdef void _acknowledge(self, State *state, int64_t phy_offset) noexcept nogil:
        cdef Line served
        cdef Waiter *waiter
        cdef Waiter *behind
        self._acquire()
        store_to(&state.position, phy_offset)
        if phy_offset > state.start:  # else it is of nothing that was sent here
            store_to(&state.acknowledged, phy_offset)
        served = self._served()
        self._release()
        waiter = served.first
        while waiter != NULL:  # each of them may be another's once it is called
            behind = waiter.behind
            PyThread_release_lock(waiter.gate)
            waiter = behind

    # ---- what a store asks

    def reached(self, Py_ssize_t followers):
        """Return up to where so many distinct followers have the log; -1: nothing, or too few."""
        cdef int64_t found
        self._acquire()
        found = self._reached(followers)
        self._release()
        return found

    def in_sync(self, int64_t phy_offset, int64_t gap):
        """Return how many distinct followers lack less than ``gap`` bytes before ``phy_offset``."""
        cdef Py_ssize_t at, found = 0
        cdef int64_t position
        self._acquire()
        for at in range(self._slots):
            self._best[at] = 0
        for at in range(self._count):
            position = self._states[at].position
            if 0 <= position > phy_offset - gap and not self._best[self._states[at].slot]:
                self._best[self._states[at].slot] = 1
                found += 1
        self._release()
        return found

    def wait(self, int64_t phy_offset, Py_ssize_t followers, double deadline, looks):
        """Return once so many distinct followers have the log up to ``phy_offset``.

        False when it is ``deadline``, by ``time.monotonic``. ``looks`` are called once it waits.

        Raises:
            BaseException: what one of ``looks`` raises, or a signal's handler in the sleep.
        """
        cdef Waiter *mine = self._new(phy_offset, followers)
        cdef bint heard = False, served
        if mine == NULL:
            return True
        try:
            for look in looks:
                look()
            heard = self._sleep(mine, deadline)
        finally:
            served = self._leave(mine, heard)
        return served

    # ---- inside

    cdef void _acquire(self) noexcept nogil:
        PyThread_acquire_lock(self._lock, WAIT_LOCK)

    cdef void _release(self) noexcept nogil:
        PyThread_release_lock(self._lock)

    cdef int64_t _reached(self, Py_ssize_t followers) noexcept nogil:
        """Under the lock."""
        cdef Py_ssize_t at, slot, there = 0
        for at in range(self._slots):
            self._best[at] = -2
        for at in range(self._count):
            slot = self._states[at].slot
            there += self._best[slot] == -2
            self._best[slot] = max(self._best[slot], self._states[at].acknowledged)
        if there < followers or followers <= 0:
            return NOT_SAID
        qsort(self._best, self._slots, sizeof(int64_t), _by_size)
        return self._best[self._slots - followers]

    cdef Line _served(self) noexcept nogil:
        """Take out those that have waited long enough, and return them; under the lock."""
        cdef Waiter *waiter = self._waiting.first
        cdef Waiter *behind
        cdef Line served = Line(NULL, NULL, 0)
        cdef Py_ssize_t followers = -1
        cdef int64_t highest, reached = NOT_SAID
        if waiter == NULL:
            return served
        highest = self._reached(1)
        while waiter != NULL and waiter.phy_offset <= highest:
            behind = waiter.behind
            if waiter.followers != followers:
                followers = waiter.followers
                reached = highest if followers == 1 else self._reached(followers)
            if waiter.phy_offset <= reached:
                remove(waiter)
                append(&served, waiter)
                store_to(&waiter.served, 1)
            waiter = behind
        return served

    cdef Waiter *_new(self, int64_t phy_offset, Py_ssize_t followers) except? NULL:
        """Return a waiter in its line; ``NULL``: there is nothing to wait for."""
        cdef Waiter *mine = new_waiter(&self._free, phy_offset)
        cdef Waiter *before
        cdef bint is_there
        mine.followers = followers
        self._acquire()
        is_there = self._reached(followers) >= phy_offset
        if not is_there:
            before = self._waiting.last
            while before != NULL and before.phy_offset > phy_offset:
                before = before.before
            insert(&self._waiting, before, mine)
        self._release()
        if is_there:
            append(&self._free, mine)
            return NULL
        return mine

    cdef bint _sleep(self, Waiter *mine, double deadline) except -1:
        """Return whether the call has come; ``deadline`` is over, or it was served, if not."""
        cdef double left
        cdef int64_t microseconds
        cdef PyLockStatus status
        while not load_of(&mine.served):
            left = deadline - monotonic()
            if left <= 0:
                return False
            microseconds = <int64_t> min(left * 1e6 + 1, <double> LOOK_AGAIN)
            with nogil:
                status = PyThread_acquire_lock_timed(mine.gate, microseconds, 1)
            if status == PY_LOCK_ACQUIRED:
                return True
            PyErr_CheckSignals()
        return False

    cdef bint _leave(self, Waiter *mine, bint heard) noexcept:
        """Give one back, also where a handler raised in the sleep; return whether it was served."""
        cdef bint served
        self._acquire()
        served = load_of(&mine.served) != 0
        if not served:
            remove(mine)
        self._release()
        if served and not heard:
            with nogil:  # the thread that served it is about to call
                PyThread_acquire_lock(mine.gate, WAIT_LOCK)
        mine.line = NULL  # the line of those that were served together has gone
        append(&self._free, mine)
        return served


cdef Py_ssize_t _received(int fd, uint8_t *into, double patience) noexcept nogil:
    """Return what ``recv`` does; ``TOO_LATE``: nothing came for so many seconds."""
    cdef double deadline = monotonic() + patience
    cdef double left
    cdef pollfd asked
    cdef Py_ssize_t got
    cdef int found
    while True:
        left = max(deadline - monotonic(), <double> 0)
        asked.fd, asked.events, asked.revents = fd, POLLIN, 0
        found = poll(&asked, 1, <int> min(left * 1000 + 1, <double> LONGEST))
        if found > 0:
            got = recv(fd, into, HEARD, MSG_DONTWAIT)
            if got >= 0 or errno != EINTR and errno != EAGAIN:
                return got
        elif found < 0 and errno != EINTR:
            return -1
        elif not left:
            return TOO_LATE
