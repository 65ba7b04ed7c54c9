# cython: language_level=3
"""Links: the connections of a store's followers, their progress, and the puts that wait for them.

A thread receives a follower's reports without the interpreter's lock, and wakes the threads whose
puts are acknowledged. If puts wait one at a time, the thread lends receiving to the waiting put,
which then reads its own acknowledgement. A native lock protects shared state; no Python code runs
while it is held. The list of free waiters is protected by the interpreter's lock.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, qsort, realloc

import os

from cqstore.replication.feed._receiver cimport (
    LEASE,
    NOTHING,
    REPORT,
    TOO_LATE,
    Receiver,
    reclaim,
    by_size,
    count_alone,
    load_of,
    may_be_lent,
    may_be_taken,
    received,
    report_at,
    store_to,
)
from cqstore.store.core._waiters cimport (
    NOWAIT_LOCK,
    PY_LOCK_ACQUIRED,
    PY_LOCK_INTR,
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
    open_gates,
    remove,
)

cdef enum:
    LOOK_AGAIN = 1000000  # microseconds
    NOT_REPORTED = -1


cdef struct State:
    # State of a link. Changed under the lock of its links, except ``sent``; any thread may read it.
    int64_t position
    int64_t start
    int64_t sent
    int64_t acknowledged
    Py_ssize_t slot  # index in ``_best``; links of one address share it
    Receiver receiver


cdef class Link:
    """One connection of a follower. Any thread may read; only ``Links`` writes, except ``sent``."""

    cdef State state
    cdef readonly str address
    cdef readonly int port

    def __cinit__(
        self, str address, int port, int64_t position=NOT_REPORTED, int64_t start=NOT_REPORTED,
        int64_t sent=NOT_REPORTED, int64_t acknowledged=NOT_REPORTED,
    ):
        self.address, self.port = address, port
        self.state.position, self.state.start = position, start
        self.state.sent, self.state.acknowledged = sent, acknowledged
        self.state.slot = -1
        self.state.receiver.gate = PyThread_allocate_lock()
        if self.state.receiver.gate == NULL:
            raise MemoryError
        PyThread_acquire_lock(self.state.receiver.gate, NOWAIT_LOCK)

    def __dealloc__(self):
        if self.state.receiver.gate != NULL:
            PyThread_free_lock(self.state.receiver.gate)

    @property
    def position(self):
        """Return the phy offset that the follower reported last; at first the requested one."""
        return load_of(&self.state.position)

    @property
    def start(self):
        """Return the phy offset from which the log is sent."""
        return load_of(&self.state.start)

    @property
    def sent(self):
        """Return the phy offset up to which the log was sent; set by the sending thread."""
        return load_of(&self.state.sent)

    @sent.setter
    def sent(self, int64_t phy_offset):
        store_to(&self.state.sent, phy_offset)

    @property
    def acknowledged(self):
        """Return the phy offset up to which sent bytes were acknowledged; -1: none were."""
        return load_of(&self.state.acknowledged)

    @property
    def is_received_by_put(self):
        """Return whether a waiting put receives from it now, instead of its thread."""
        return load_of(&self.state.receiver.taken) != 0

    @property
    def received_by_puts(self):
        """Return how often a waiting put has received from it, instead of its thread."""
        return load_of(&self.state.receiver.turns)


cdef class Links:
    """The links of one store, and the puts that wait for them. Any thread."""

    cdef PyThread_type_lock _lock
    cdef list _links
    cdef State **_states  # of ``_links``
    cdef int64_t *_best  # scratch space, one element per slot
    cdef Py_ssize_t _count, _room, _slots
    cdef Line _waiting  # by phy offset
    cdef Line _free  # waiters not in use
    cdef int64_t _lease  # microseconds

    def __cinit__(self, double lease=LEASE * 1e-6):
        """A thread that lends receiving checks on the connection every ``lease`` seconds."""
        self._links, self._lease = [], <int64_t> (lease * 1e6)
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
        """Return the number of waiting puts."""
        self._acquire()
        count = self._waiting.count
        self._release()
        return count

    def links(self):
        """Return the current connections."""
        return list(self._links)

    # ---- called by feeders

    def join(self, Link link):
        """Add a connection."""
        if self._count == self._room:
            self._make_room(max(2 * self._room, 8))
        slot = self._slot(link.address)
        self._links.append(link)  # the last step that may fail
        self._acquire()
        if self._count:
            reclaim(&self._states[0].receiver)  # a put receives only if this is the only link
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
        """Return the slot of an address: that of its other links, or the first free one."""
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
        """Remove a connection, if it exists; its acknowledgements no longer count."""
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
        """Record that the follower requested ``request`` and is served from ``start``."""
        self._acquire()
        store_to(&link.state.position, request)
        store_to(&link.state.start, start)
        store_to(&link.state.sent, start)
        self._release()

    def acknowledge(self, Link link, int64_t phy_offset):
        """Record an acknowledgement up to ``phy_offset``, which the caller has checked."""
        with nogil:
            self._acknowledge(&link.state, phy_offset)

    def receive(self, Link link, int fd, double patience):
        """Process reports that are complete and valid, until other bytes arrive.

        Returns those bytes unprocessed; empty if the follower closed the connection.

        Raises:
            TimeoutError: nothing was received for ``patience`` seconds.
            OSError: the connection failed.
        """
        cdef Receiver *receiver = &link.state.receiver
        cdef Py_ssize_t got
        with nogil:
            self._acquire()
            receiver.fd, receiver.received_at = fd, monotonic()
            self._release()
            while True:
                got = self._lend(receiver, patience)
                if got == NOTHING:
                    got = received(receiver, receiver.received_at + patience, False)
                    receiver.fault = errno
                if got <= 0 or not self._take(&link.state, got):
                    break
        if got == TOO_LATE:
            raise TimeoutError
        if got < 0:
            raise OSError(receiver.fault, os.strerror(receiver.fault))
        return <bytes> receiver.data[:got]

    cdef Py_ssize_t _lend(self, Receiver *receiver, double patience) noexcept nogil:
        """Lend receiving to puts if they wait one at a time, until one returns it or none uses it.

        Returns the result of ``recv`` that a put could not process, or ``NOTHING``.
        """
        cdef int64_t turns
        cdef bint called
        self._acquire()
        receiver.lent = may_be_lent(receiver, self._count, self._waiting.count)
        receiver.reclaimed, receiver.got, turns = False, NOTHING, receiver.turns
        called = not receiver.lent
        while receiver.lent:
            self._release()
            called = PyThread_acquire_lock_timed(receiver.gate, self._lease, 0) == PY_LOCK_ACQUIRED
            self._acquire()
            if receiver.lent:  # timed out: no put has woken this thread
                receiver.reclaimed = (
                    receiver.turns == turns or monotonic() > receiver.received_at + patience
                )
                turns = receiver.turns
                receiver.lent = receiver.taken != 0 or not receiver.reclaimed
                called = not receiver.lent  # no wake-up follows
        self._release()
        if not called:  # a put is about to wake this thread
            PyThread_acquire_lock(receiver.gate, WAIT_LOCK)
        return receiver.got

    cdef bint _take(self, State *state, Py_ssize_t size) noexcept nogil:
        """Process reports if they increase and are within the sent bytes; return whether so."""
        cdef const uint8_t *data = state.receiver.data
        cdef int64_t last = max(load_of(&state.position), <int64_t> 0)
        cdef int64_t phy_offset
        cdef Py_ssize_t at
        if size % REPORT:
            return False
        for at in range(size // REPORT):
            phy_offset = report_at(data + at * REPORT)
            if phy_offset < last:
                return False
            last = phy_offset
        if last > load_of(&state.sent):
            return False
        self._acknowledge(state, last)
        return True

    cdef void _acknowledge(self, State *state, int64_t phy_offset) noexcept nogil:
        cdef Line served
        self._acquire()
        store_to(&state.position, phy_offset)
        if phy_offset > state.start:  # else nothing sent on this link is acknowledged
            store_to(&state.acknowledged, phy_offset)
        served = self._served()
        state.receiver.received_at = monotonic()
        count_alone(&state.receiver, served.count, self._waiting.count)
        self._release()
        open_gates(served.first)

    # ---- called by a store

    def reached(self, Py_ssize_t followers):
        """Return the phy offset that this many distinct followers have; -1: none, or too few."""
        cdef int64_t found
        self._acquire()
        found = self._reached(followers)
        self._release()
        return found

    def in_sync(self, int64_t phy_offset, int64_t gap):
        """Return how many distinct followers lag ``phy_offset`` by less than ``gap`` bytes."""
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
        """Wait until this many distinct followers have the log up to ``phy_offset``.

        Returns False at ``deadline`` (``time.monotonic``). ``looks`` are called after it is queued.

        Raises:
            BaseException: raised by one of ``looks``, or by a signal handler during the wait.
        """
        cdef Waiter *mine = self._new(phy_offset, followers)
        cdef bint is_woken = False, served
        if mine == NULL:
            return True
        try:
            for look in looks:
                look()
            is_woken = self._sleep(mine, deadline)
        finally:
            served = self._leave(mine, is_woken)
        return served

    cdef void _acquire(self) noexcept nogil:
        PyThread_acquire_lock(self._lock, WAIT_LOCK)

    cdef void _release(self) noexcept nogil:
        PyThread_release_lock(self._lock)

    cdef int64_t _reached(self, Py_ssize_t followers) noexcept nogil:
        """Return as ``reached``; under the lock."""
        cdef Py_ssize_t at, slot, there = 0
        for at in range(self._slots):
            self._best[at] = -2
        for at in range(self._count):
            slot = self._states[at].slot
            there += self._best[slot] == -2
            self._best[slot] = max(self._best[slot], self._states[at].acknowledged)
        if there < followers or followers <= 0:
            return NOT_REPORTED
        qsort(self._best, self._slots, sizeof(int64_t), by_size)
        return self._best[self._slots - followers]

    cdef Line _served(self) noexcept nogil:
        """Remove and return the waiters that are acknowledged; under the lock."""
        cdef Waiter *waiter = self._waiting.first
        cdef Waiter *behind
        cdef Line served = Line(NULL, NULL, 0)
        cdef Py_ssize_t followers = -1
        cdef int64_t highest, reached = NOT_REPORTED
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
        """Return a queued waiter; ``NULL``: the condition already holds."""
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
        """Return whether the wake-up arrived; if not, it timed out or was served otherwise."""
        cdef double left
        cdef int64_t microseconds
        cdef PyLockStatus status = PY_LOCK_INTR
        while not load_of(&mine.served):
            left = deadline - monotonic()
            if left <= 0:
                return False
            microseconds = <int64_t> min(left * 1e6 + 1, <double> LOOK_AGAIN)
            with nogil:
                if not self._received_alone(mine, deadline):
                    status = PyThread_acquire_lock_timed(mine.gate, microseconds, 1)
            if status == PY_LOCK_ACQUIRED:
                return True
            PyErr_CheckSignals()
        return False

    cdef bint _received_alone(self, Waiter *mine, double deadline) noexcept nogil:
        """Receive for a moment if receiving is lent; return whether. The link's thread waits."""
        cdef State *state = self._taken()
        cdef Py_ssize_t got
        cdef bint is_other = False
        if state == NULL:
            return False
        deadline = min(deadline, monotonic() + self._lease * 5e-7)
        while not is_other and not load_of(&mine.served):
            got = received(&state.receiver, deadline, True)
            state.receiver.fault = errno
            if got == TOO_LATE:
                break
            is_other = got <= 0 or not self._take(state, got)
        self._give_back(&state.receiver, mine, got if is_other else <Py_ssize_t> NOTHING)
        return True

    cdef State *_taken(self) noexcept nogil:
        """Take the connection from which this put may receive now; ``NULL``: none."""
        cdef State *state = NULL
        self._acquire()
        if self._count and may_be_taken(&self._states[0].receiver):
            state = self._states[0]
            store_to(&state.receiver.taken, 1)
        self._release()
        return state

    cdef void _give_back(self, Receiver *receiver, Waiter *mine, Py_ssize_t got) noexcept nogil:
        """Return receiving to the next put or to the thread; only the thread processes ``got``."""
        cdef bint is_over
        self._acquire()
        store_to(&receiver.taken, 0)
        receiver.got = got
        store_to(&receiver.turns, receiver.turns + 1)
        is_over = got != NOTHING or receiver.reclaimed or self._waiting.count + mine.served > 1
        receiver.lent = not is_over
        self._release()
        if is_over:
            PyThread_release_lock(receiver.gate)

    cdef bint _leave(self, Waiter *mine, bint is_woken) noexcept:
        """Free a waiter, also after an exception in the wait; return whether it was served."""
        cdef bint served
        self._acquire()
        served = load_of(&mine.served) != 0
        if not served:
            remove(mine)
        self._release()
        if served and not is_woken:
            with nogil:  # the thread that served it is about to wake it
                PyThread_acquire_lock(mine.gate, WAIT_LOCK)
        mine.line = NULL  # the list of waiters served together no longer exists
        append(&self._free, mine)
        return served
