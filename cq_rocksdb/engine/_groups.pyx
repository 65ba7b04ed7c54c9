# cython: language_level=3, boundscheck=False, wraparound=False
"""QueueGroups: groups the units of a batch by queue, with the queues in key order.

The names of the queues are copied under the interpreter's lock; the rest runs without it.
"""

from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from cqstore.cq_rocksdb.engine._keys cimport (
    CTRL, KEY_HEAD_BYTES, MAX_PREFIX, QUEUE_TAIL_BYTES, UNIT_BYTES, is_below,
)
from cqstore.cq_rocksdb.engine._states cimport hash_of
from cqstore.store.core._bytes cimport load64, store32

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void *PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1


cdef class QueueGroups:
    """The units of a batch, grouped by queue; ``is_fast`` is false if a value is irregular."""

    def __cinit__(
        self, queues, const uint8_t[::1] queue_index, const uint8_t[::1] queue_offset,
        const uint8_t[::1] units, int64_t max_offset, Py_ssize_t max_topic,
        bytes reserved not None,
    ):
        """Group the units. ``max_offset``: first invalid offset; ``reserved``: not a topic."""
        cdef tuple keys = tuple(queues)
        cdef Py_ssize_t at
        self.queues, self.count = len(keys), units.shape[0] // UNIT_BYTES
        self.queue_index, self.queue_offset, self.units = queue_index, queue_offset, units
        if (
            not self.count or units.shape[0] != self.count * UNIT_BYTES
            or queue_index.shape[0] != self.count * <Py_ssize_t> sizeof(int32_t)
            or queue_offset.shape[0] != self.count * <Py_ssize_t> sizeof(int64_t)
            or self.queues > INT32_MAX or self.count > INT32_MAX
        ):
            return
        self.groups = <Group *> PyMem_RawCalloc(self.queues + 1, sizeof(Group))
        self.order = <Placed *> PyMem_RawMalloc(2 * (self.queues + 1) * sizeof(Placed))
        if self.groups == NULL or self.order == NULL:
            raise MemoryError
        self.spare = self.order + self.queues
        max_topic = min(max_topic, <Py_ssize_t> (MAX_PREFIX - KEY_HEAD_BYTES - QUEUE_TAIL_BYTES))
        for at in range(self.queues):
            if not self._name(&self.groups[at], keys[at], max_topic, reserved):
                return
        with nogil:
            if self._group(max_offset):
                self._sort()
                self.is_fast = self.used > 0

    def __dealloc__(self):
        PyMem_RawFree(self.groups)
        PyMem_RawFree(self.order)
        PyMem_RawFree(self.names)

    # ---- content of the batch

    cdef bint _name(self, Group *group, key, Py_ssize_t max_topic, bytes reserved) except -1:
        """Copy a queue's prefix; return whether the queue is valid."""
        cdef const char *topic
        cdef Py_ssize_t length
        cdef bytes encoded
        cdef int overflow = 0
        cdef long long queue_id
        if not isinstance(key, tuple) or PyTuple_GET_SIZE(key) != 2:
            return False
        name, number = (<tuple> key)[0], (<tuple> key)[1]
        if type(name) is not str or type(number) is not int:
            return False
        queue_id = PyLong_AsLongLongAndOverflow(number, &overflow)
        if overflow or not INT32_MIN <= queue_id <= INT32_MAX:
            return False
        if PyUnicode_IS_COMPACT_ASCII(name):
            topic, length = <const char *> PyUnicode_1BYTE_DATA(name), PyUnicode_GET_LENGTH(name)
        else:
            try:
                encoded = (<str> name).encode()
            except UnicodeEncodeError:
                return False
            topic, length = encoded, len(encoded)
        if length > max_topic or length == len(reserved) and not memcmp(
            topic, <const char *> reserved, length
        ):
            return False
        group.length = KEY_HEAD_BYTES + length + QUEUE_TAIL_BYTES
        group.name = self.names_used
        self._put_name(self._room_for_name(group.length), topic, length, <int32_t> queue_id)
        return True

    cdef char *_room_for_name(self, size_t length) except NULL:
        cdef char *names
        cdef size_t room
        if self.names_used + length > self.names_room:
            room = self.names_used + length + max(self.names_used, <size_t> (64 * self.queues))
            names = <char *> PyMem_RawRealloc(self.names, room)
            if names == NULL:
                raise MemoryError
            self.names, self.names_room = names, room
        self.names_used += length
        return self.names + self.names_used - length

    cdef void _put_name(
        self, char *out, const char *topic, size_t length, int32_t queue_id
    ) noexcept nogil:
        store32(out, <int32_t> length)
        out[KEY_HEAD_BYTES - 1] = CTRL
        memcpy(out + KEY_HEAD_BYTES, topic, length)
        out += KEY_HEAD_BYTES + length
        out[0] = out[QUEUE_TAIL_BYTES - 1] = CTRL
        store32(out + 1, queue_id)

    cdef bint _group(self, int64_t max_offset) noexcept nogil:
        """Count each queue's units; return whether all offsets are in range."""
        cdef const int32_t *queue = <const int32_t *> &self.queue_index[0]
        cdef const int64_t *offset = <const int64_t *> &self.queue_offset[0]
        cdef const uint8_t *unit = &self.units[0]
        cdef int64_t phy
        cdef Group *group
        cdef Py_ssize_t row
        for row in range(self.count):
            if not (0 <= queue[row] < self.queues and 0 <= offset[row] < max_offset):
                return False
            group = &self.groups[queue[row]]
            phy = load64(unit)
            if not group.count:
                group.first_offset, group.first_phy = offset[row], phy
            elif offset[row] != group.next_offset or phy <= group.last_phy:  # a second run
                group.is_irregular = self.has_irregular = True
            group.next_offset, group.count = offset[row] + 1, group.count + 1
            group.last_phy = phy
            unit += UNIT_BYTES
        return True

    cdef void _sort(self) noexcept nogil:
        """Sort the queues that have units by key; leave out irregular ones."""
        cdef Py_ssize_t at
        cdef Group *group
        cdef Group *first = NULL
        cdef size_t common = 0, place
        cdef bint sorted = True
        for at in range(self.queues):
            group = &self.groups[at]
            if not group.count:
                continue
            group.hash, group.slot = hash_of(self.names + group.name, group.length), -1
            if first == NULL:
                first, common = group, group.length
            common = min(common, <size_t> group.length)
            place = 0
            while place < common and (
                self.names[group.name + place] == self.names[first.name + place]
            ):
                place += 1
            common = place
            self.order[self.used].group = at
            self.used += 1
        for at in range(self.used):
            self.order[at].head = self._head(&self.groups[self.order[at].group], common)
            sorted = sorted and (not at or self._is_before(at - 1, at))
        if not sorted:
            self._merge_sort()
        for at in range(1, self.used):
            if not self._is_before(at - 1, at):  # the batch lists a queue twice
                self.groups[self.order[at - 1].group].is_irregular = True
                self.groups[self.order[at].group].is_irregular = self.has_irregular = True
        if self.has_irregular:
            self.leave_irregular()

    cdef void leave_irregular(self) noexcept nogil:
        """Remove the irregular queues from ``order``."""
        cdef Py_ssize_t at, kept = 0
        for at in range(self.used):
            if self.groups[self.order[at].group].is_irregular:
                self.left_out += 1
            else:
                self.order[kept] = self.order[at]
                kept += 1
        self.used, self.has_irregular = kept, False

    cdef uint64_t _head(self, const Group *group, size_t common) noexcept nogil:
        """Return the part of a prefix after ``common`` bytes, as a number with the same order."""
        cdef unsigned char head[8]
        memset(head, 0, 8)
        memcpy(head, self.names + group.name + common, min(group.length - common, <size_t> 8))
        return <uint64_t> load64(head)

    cdef bint _is_before(self, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
        return self._is_less(&self.order[one], &self.order[other])

    cdef bint _is_less(self, const Placed *one, const Placed *other) noexcept nogil:
        cdef const Group *left
        cdef const Group *right
        if one.head != other.head:
            return one.head < other.head
        left, right = &self.groups[one.group], &self.groups[other.group]
        return is_below(
            self.names + left.name, left.length, self.names + right.name, right.length
        )

    cdef void _merge_sort(self) noexcept nogil:
        cdef Py_ssize_t width = 1, start, middle, end, left, right, at
        cdef Placed *source = self.order
        cdef Placed *target = self.spare
        while width < self.used:
            start = 0
            while start < self.used:
                middle = min(start + width, self.used)
                end = min(middle + width, self.used)
                left, right = start, middle
                for at in range(start, end):
                    if right >= end or left < middle and not self._is_less(
                        &source[right], &source[left]
                    ):
                        target[at] = source[left]
                        left += 1
                    else:
                        target[at] = source[right]
                        right += 1
                start = end
            source, target = target, source
            width *= 2
        if source != self.order:
            memcpy(self.order, source, self.used * sizeof(Placed))
