# cython: language_level=3, boundscheck=False, wraparound=False
"""StateTable: last and first unit of the queues in use, in C memory.

Each slot holds a queue; an index with open addressing maps prefixes to slots. The CLOCK algorithm
selects the queue to evict. No function here runs Python code between two changes.
"""

from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    FIRST_SLOTS = 1024

seed = <uint64_t> <Py_ssize_t> hash("the queues in use")  # random per process


cdef class StateTable:
    """Rows ``(last phy, last offset, first phy, first offset)`` by prefix, see ``StateCache``.

    One thread at a time: the caller holds a lock around every call.
    """

    def __cinit__(self, Py_ssize_t capacity):
        if capacity < 1:
            raise ValueError("the capacity must be at least 1")
        self.capacity = min(capacity, <Py_ssize_t> 1 << 30)

    def __dealloc__(self):
        self._release()

    cdef void _release(self) noexcept:
        cdef Py_ssize_t slot
        for slot in range(self.size):
            PyMem_RawFree(self.states[slot].prefix)
        PyMem_RawFree(self.states)
        PyMem_RawFree(self.free_slots)
        PyMem_RawFree(self.index)
        self.states, self.free_slots, self.index = NULL, NULL, NULL
        self.size = self.free_count = self.count = self.hand = 0

    # ---- for compiled code

    cdef Py_ssize_t find(self, const char *prefix, size_t length, uint64_t hash) noexcept nogil:
        """Return the slot of a queue; -1: not in the table."""
        cdef State *state
        cdef uint64_t at = hash & self.mask
        if not self.size:
            return -1
        while self.index[at] >= 0:
            state = &self.states[self.index[at]]
            if state.hash == hash and state.length == length and not memcmp(
                state.prefix, prefix, length
            ):
                return self.index[at]
            at = (at + 1) & self.mask
        return -1

    cdef bint holds(self, Py_ssize_t slot, const char *prefix, size_t length) noexcept nogil:
        """Return whether a slot still belongs to the queue."""
        return (
            0 <= slot < self.size and self.states[slot].prefix != NULL
            and self.states[slot].length == length
            and not memcmp(self.states[slot].prefix, prefix, length)
        )

    cdef void add_all(self, const Named *named, Py_ssize_t count) noexcept nogil:
        """Add queues that are not in the table; if more than fit, the last ones remain."""
        cdef Py_ssize_t room, first, at
        if self.free_count < count:
            self._grow(self.count + count)
        while self.free_count < count and self.count:
            self._evict()
        room = min(count, self.free_count)
        first = self.free_count = self.free_count - room
        for at in range(room):
            self._add(self.free_slots[first + at], &named[count - room + at])

    cdef void _add(self, Py_ssize_t free_slot, const Named *named) noexcept nogil:
        """Fill a slot taken from ``free_slots``, or return it there."""
        cdef Py_ssize_t slot = self.find(named.prefix, named.length, named.hash)
        cdef State *state
        if slot < 0:
            state = &self.states[free_slot]
            state.prefix = <char *> PyMem_RawMalloc(named.length + 1)
            if state.prefix != NULL:
                memcpy(state.prefix, named.prefix, named.length)
                memcpy(state.row, named.row, sizeof(state.row))
                state.hash, state.length, state.used = named.hash, named.length, False
                self.count += 1
                self._link(free_slot)
                return
        else:  # it was listed twice
            memcpy(self.states[slot].row, named.row, sizeof(self.states[slot].row))
        self.free_slots[self.free_count] = free_slot
        self.free_count += 1

    cdef void drop(self, Py_ssize_t slot) noexcept nogil:
        """Free the slot of a queue."""
        cdef uint64_t at = self.states[slot].hash & self.mask, behind, home
        while self.index[at] != slot:
            at = (at + 1) & self.mask
        behind = at
        while True:  # move later slots up, unless that puts them before their hash position
            behind = (behind + 1) & self.mask
            if self.index[behind] < 0:
                break
            home = self.states[self.index[behind]].hash & self.mask
            if (behind - home & self.mask) >= (behind - at & self.mask):
                self.index[at] = self.index[behind]
                at = behind
        self.index[at] = -1
        PyMem_RawFree(self.states[slot].prefix)
        self.states[slot].prefix = NULL
        self.free_slots[self.free_count] = slot
        self.free_count += 1
        self.count -= 1

    cdef void _link(self, Py_ssize_t slot) noexcept nogil:
        cdef uint64_t at = self.states[slot].hash & self.mask
        while self.index[at] >= 0:
            at = (at + 1) & self.mask
        self.index[at] = slot

    cdef void _evict(self) noexcept nogil:
        """Advance the hand to a queue not used since its last pass, and evict that queue."""
        cdef State *state
        while True:
            state = &self.states[self.hand]
            if state.prefix != NULL and not state.used:
                break
            state.used = False
            self.hand = (self.hand + 1) % self.size
        self.drop(self.hand)
        self.hand = (self.hand + 1) % self.size

    cdef void _grow(self, Py_ssize_t wanted) noexcept nogil:
        """Add slots, up to ``capacity``; if memory is short, the table stays as it is."""
        cdef Py_ssize_t before = self.size, size, slot
        cdef uint64_t places = 1
        cdef void *data
        cdef int32_t *index
        size = min(max(wanted, 2 * before, <Py_ssize_t> FIRST_SLOTS), self.capacity)
        if wanted <= before or size <= before:
            return
        while places < <uint64_t> (2 * size):
            places *= 2
        data = PyMem_RawRealloc(self.states, size * sizeof(State))
        if data == NULL:
            return
        self.states = <State *> data
        data = PyMem_RawRealloc(self.free_slots, size * sizeof(int32_t))
        if data == NULL:
            return
        self.free_slots = <int32_t *> data
        index = <int32_t *> PyMem_RawMalloc(places * sizeof(int32_t))
        if index == NULL:
            return
        memset(index, 0xff, places * sizeof(int32_t))
        memset(self.states + before, 0, (size - before) * sizeof(State))
        PyMem_RawFree(self.index)
        self.index, self.mask, self.size = index, places - 1, size
        for slot in range(before):
            if self.states[slot].prefix != NULL:
                self._link(slot)
        for slot in range(before, size):
            self.free_slots[self.free_count] = slot
            self.free_count += 1

    cdef Py_ssize_t _use(self, bytes prefix) except -2:
        """Mark a queue as used and return its slot; -1: not in the table."""
        cdef const char *name = prefix
        cdef Py_ssize_t length = len(prefix), slot = self.find(name, length, hash_of(name, length))
        if slot >= 0:
            self.states[slot].used = True
        return slot

    # ---- for Python

    def __len__(self):
        return self.count

    def clear(self):
        """Remove every queue."""
        self._release()

    def get(self, bytes prefix not None):
        """Return the row of one queue; ``None``: not in the table."""
        cdef Py_ssize_t slot = self._use(prefix)
        cdef int64_t row[ROW_FIELDS]
        if slot < 0:
            return None
        memcpy(row, self.states[slot].row, sizeof(row))
        return [row[0], row[1], row[2], row[3]]

    def last_offset(self, bytes prefix not None):
        """Return only the offset of a queue's last unit; ``None``: not in the table."""
        cdef Py_ssize_t slot = self._use(prefix)
        return None if slot < 0 else self.states[slot].row[1]

    def set_first(self, bytes prefix not None, int64_t phy_offset, int64_t queue_offset):
        """Set the first unit of a queue, if it is in the table."""
        cdef const char *name = prefix
        cdef Py_ssize_t slot = self.find(name, len(prefix), hash_of(name, len(prefix)))
        if slot >= 0:
            self.states[slot].row[2], self.states[slot].row[3] = phy_offset, queue_offset

    def discard(self, bytes prefix not None):
        """Remove one queue, if it is in the table."""
        cdef const char *name = prefix
        cdef Py_ssize_t slot = self.find(name, len(prefix), hash_of(name, len(prefix)))
        if slot >= 0:
            self.drop(slot)

    def find_into(self, list prefixes not None, int64_t[:, ::1] rows):
        """Fill a row for each of ``prefixes`` in the table; return the indexes of the others."""
        cdef Py_ssize_t at, slot
        cdef list missing = []
        cdef tuple held = tuple(prefixes)
        if rows.shape[0] != len(held) or rows.shape[1] != ROW_FIELDS:
            raise ValueError("one row of four columns is needed per prefix")
        for at in range(len(held)):
            slot = self._use(held[at])
            if slot < 0:
                missing.append(at)
            else:
                memcpy(&rows[at, 0], self.states[slot].row, sizeof(self.states[slot].row))
        return missing

    def put_from(self, list prefixes not None, const int64_t[:, ::1] rows):
        """Set the row of each of ``prefixes``; if more are new than fit, the last ones remain."""
        cdef tuple held = tuple(prefixes)  # keeps their bytes alive
        cdef Py_ssize_t at, slot, new = 0, count = len(held)
        cdef bytes prefix
        cdef Named named
        cdef Named *all_new
        if rows.shape[0] != count or rows.shape[1] != ROW_FIELDS:
            raise ValueError("one row of four columns is needed per prefix")
        all_new = <Named *> PyMem_RawMalloc(count * sizeof(Named) + 1)
        if all_new == NULL:
            raise MemoryError
        try:
            for at in range(count):
                prefix = held[at]
                named.prefix, named.length, named.row = prefix, len(prefix), &rows[at, 0]
                named.hash = hash_of(named.prefix, named.length)
                slot = self.find(named.prefix, named.length, named.hash)
                if slot >= 0:
                    memcpy(self.states[slot].row, named.row, sizeof(self.states[slot].row))
                else:
                    all_new[new] = named
                    new += 1
            self.add_all(all_new, new)
        finally:
            PyMem_RawFree(all_new)
