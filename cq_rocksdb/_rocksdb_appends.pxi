# AppendJob: units at the ends of queues, a batch as one write. Part of `_native.pyx`.
#
# The fast path of `BatchPlan`: each queue's units follow its last one in one run. Grouping, the order
# of keys, looks into the table of ends, the write and the move of the ends hold no lock of the
# interpreter's; the names of the queues are copied under it. A batch with any other queue is handed
# back before anything was changed.

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object)
    void *PyUnicode_1BYTE_DATA(object)
    Py_ssize_t PyUnicode_GET_LENGTH(object)
    long long PyLong_AsLongLongAndOverflow(object, int *overflow) except? -1

cdef enum:
    ENTRY_BYTES = 16  # value of a `max` entry
    HEAD_BYTES = 5  # of a key, before the topic
    TAIL_BYTES = 6  # of a unit's key, between topic and queue offset
    KEPT_BYTES = 8 << 20  # a batch of 65,536 units of a topic of 60 bytes


cdef struct Group:
    # The units of one queue; `at` is where its next record goes in the write batch.
    int64_t row[ROW_FIELDS]  # as the table has it; what it is behind the write
    int64_t first_offset, next_offset, first_phy, last_phy
    size_t name  # where its prefix begins in `names`
    uint64_t hash
    size_t at
    uint32_t count, length
    int32_t slot


cdef struct Placed:
    uint64_t head  # of the prefix, behind what all have in common
    int32_t group


cdef class AppendJob:
    """The units of a batch on their way to the ends of their queues. One thread at a time.

    ``find``, ``rest``, ``follows``, ``write``, ``move``, in this order, as long as ``is_fast``: it is
    false where something is not plain.
    """

    cdef readonly bint is_fast
    cdef const uint8_t[::1] queue_index, queue_offset, units  # they hold what they show
    cdef Group *groups
    cdef Placed *order
    cdef Placed *spare
    cdef char *names
    cdef size_t names_used, names_room
    cdef Py_ssize_t queues, count, used  # queues of the batch, its units, queues that have any

    def __cinit__(
        self, queues, const uint8_t[::1] queue_index, const uint8_t[::1] queue_offset,
        const uint8_t[::1] units, *, int64_t max_offset, Py_ssize_t max_topic, bytes reserved not None
    ):
        """Group the units. ``max_offset``: the first impossible one; ``reserved``: no topic."""
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
        max_topic = min(max_topic, <Py_ssize_t> (MAX_PREFIX - HEAD_BYTES - TAIL_BYTES))
        for at in range(self.queues):
            if not self._name(&self.groups[at], keys[at], max_topic, reserved):
                return
        with nogil:
            self.is_fast = self._group(max_offset) and self._sort()

    def __dealloc__(self):
        PyMem_RawFree(self.groups)
        PyMem_RawFree(self.order)
        PyMem_RawFree(self.names)

    # ---- what is in the batch

    cdef bint _name(self, Group *group, key, Py_ssize_t max_topic, bytes reserved) except -1:
        """Copy a queue's prefix; return whether it is that of a sound queue."""
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
        group.length = HEAD_BYTES + length + TAIL_BYTES
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
        store_be32(out, <int32_t> length)
        out[HEAD_BYTES - 1] = CTRL
        memcpy(out + HEAD_BYTES, topic, length)
        out += HEAD_BYTES + length
        out[0] = out[TAIL_BYTES - 1] = CTRL
        store_be32(out + 1, queue_id)

    cdef bint _group(self, int64_t max_offset) noexcept nogil:
        """Count each queue's units; return whether each has one run of possible offsets."""
        cdef const int32_t *queue = <const int32_t *> &self.queue_index[0]
        cdef const int64_t *offset = <const int64_t *> &self.queue_offset[0]
        cdef const uint8_t *unit = &self.units[0]
        cdef Group *group
        cdef Py_ssize_t row
        for row in range(self.count):
            if not (0 <= queue[row] < self.queues and 0 <= offset[row] < max_offset):
                return False
            group = &self.groups[queue[row]]
            if not group.count:
                group.first_offset, group.first_phy = offset[row], load_be64(unit)
            elif offset[row] != group.next_offset:
                return False
            group.next_offset, group.count = offset[row] + 1, group.count + 1
            group.last_phy = load_be64(unit)
            unit += UNIT_BYTES
        return True

    cdef bint _sort(self) noexcept nogil:
        """Bring the queues that have units in the order of their keys; return whether they differ."""
        cdef Py_ssize_t at
        cdef Group *group
        cdef Group *first = NULL
        cdef size_t common = 0, place
        cdef bint sorted = True
        for at in range(self.queues):
            group = &self.groups[at]
            if not group.count:
                continue
            group.hash, group.slot = _hash_of(self.names + group.name, group.length), -1
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
            if not self._is_before(at - 1, at):
                return False  # a queue that comes twice has two runs
        return True

    cdef uint64_t _head(self, const Group *group, size_t common) noexcept nogil:
        """Return what follows in a prefix behind ``common`` bytes, as a number that sorts so."""
        cdef unsigned char head[8]
        memset(head, 0, 8)
        memcpy(head, self.names + group.name + common, min(group.length - common, <size_t> 8))
        return <uint64_t> load_be64(head)

    cdef bint _is_before(self, Py_ssize_t one, Py_ssize_t other) noexcept nogil:
        return self._is_less(&self.order[one], &self.order[other])

    cdef bint _is_less(self, const Placed *one, const Placed *other) noexcept nogil:
        cdef const Group *left
        cdef const Group *right
        if one.head != other.head:
            return one.head < other.head
        left, right = &self.groups[one.group], &self.groups[other.group]
        return _below(
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

    # ---- what is known of its queues; the caller holds the table's lock

    def find(self, StateTable table not None):
        """Take what the table has; return the prefixes of the other queues, for ``rest``."""
        cdef Py_ssize_t at
        cdef Group *group
        cdef list missing = []
        with nogil:
            for at in range(self.used):
                group = &self.groups[self.order[at].group]
                group.slot = table.find(self.names + group.name, group.length, group.hash)
                if group.slot >= 0:
                    table.states[group.slot].used = True
                    memcpy(group.row, table.states[group.slot].row, sizeof(group.row))
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            if group.slot < 0:
                missing.append((self.names + group.name)[:group.length])
        return missing

    def rest(self, const int64_t[:, ::1] rows):
        """Take the rows of the queues that ``find`` has missed."""
        cdef Py_ssize_t at, next_row = 0
        cdef Group *group
        if rows.shape[1] != ROW_FIELDS:
            raise ValueError("a queue has a row of four")
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            if group.slot < 0:
                if next_row >= rows.shape[0]:
                    raise ValueError("a queue has no row")
                memcpy(group.row, &rows[next_row, 0], sizeof(group.row))
                next_row += 1

    def follows(self):
        """Return whether the units of each queue go on where it ends."""
        cdef Py_ssize_t at
        cdef const Group *group
        with nogil:
            for at in range(self.used):
                group = &self.groups[self.order[at].group]
                if group.first_offset - 1 != group.row[1] or group.first_phy <= group.row[0]:
                    self.is_fast = False
                    break
        return self.is_fast

    def move(self, StateTable table not None):
        """Take over in the table what was written: all, or nothing where it is not known."""
        cdef Named *all_new = <Named *> PyMem_RawMalloc((self.used + 1) * sizeof(Named))
        if all_new == NULL:
            raise MemoryError
        with nogil:
            self._move(table, all_new)
        PyMem_RawFree(all_new)

    cdef void _move(self, StateTable table, Named *all_new) noexcept nogil:
        cdef Py_ssize_t at, new = 0
        cdef Group *group
        cdef const char *name
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            name = self.names + group.name
            group.row[0], group.row[1] = group.last_phy, group.next_offset - 1
            if not table.holds(group.slot, name, group.length):  # a reader's queue took its slot
                group.slot = table.find(name, group.length, group.hash)
            if group.slot < 0:
                all_new[new].prefix, all_new[new].length = name, group.length
                all_new[new].hash, all_new[new].row = group.hash, group.row
                new += 1
            else:  # of the first unit a reader may know more than was known before the write
                table.states[group.slot].row[0] = group.row[0]
                table.states[group.slot].row[1] = group.row[1]
        table.add_all(all_new, new)

    # ---- the write

    def write(self, Database database not None, int family, bytes key not None, bytes value not None):
        """Write the units, in ``family`` the ends of their queues, and there ``key`` and ``value``."""
        cdef char *error = NULL
        cdef P writes
        cdef size_t size = self._build(database, family, key, value)
        with nogil:
            writes = O.writebatch_create_from(database.built, size)
            C.write(database.db, database.write_options, writes, &error)
            O.writebatch_destroy(writes)
        _keep_at_most(database, KEPT_BYTES)
        database.let_go()
        _check(error)

    def built(self, Database database not None, int family, bytes key not None, bytes value not None):
        """Return what ``write`` hands to RocksDB."""
        cdef size_t size = self._build(database, family, key, value)
        try:
            return database.built[:size]
        finally:
            _keep_at_most(database, 0)

    cdef size_t _build(self, Database database, int family, bytes key, bytes value) except 0:
        """Build the write batch in RocksDB's own form; return its bytes, in ``database.built``."""
        cdef const char *key_bytes = key
        cdef const char *value_bytes = value
        cdef size_t key_length = len(key), value_length = len(value), at, size
        cdef RecordHead of_unit, of_entry
        database._check_open()
        if not self.is_fast:
            raise ValueError("a batch that is not plain")
        of_unit = _head_of(database.writes, database.families[0])
        of_entry = _head_of(database.writes, database.families[family])
        with nogil:
            at = self._lay_out(&of_unit)
            size = at + self._entries_bytes(&of_entry)
            size += _record_bytes(&of_entry, key_length, value_length)
        _make_room(database, size)
        with nogil:
            memset(database.built, 0, BATCH_HEAD)
            store_le32(database.built + COUNT_AT, <uint32_t> (self.count + self.used + 1))
            self._put_units(database.built, &of_unit)
            at = self._put_entries(database.built, at, &of_entry)
            at += _put_key(database.built + at, &of_entry, key_bytes, key_length)
            _put_value(database.built + at, value_bytes, value_length)
        return size

    cdef size_t _lay_out(self, const RecordHead *head) noexcept nogil:
        """Find where each queue's records begin; return where the last one ends."""
        cdef size_t end = BATCH_HEAD
        cdef Py_ssize_t at
        cdef Group *group
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            group.at = end
            end += group.count * _record_bytes(head, group.length + PLACE_BYTES, UNIT_BYTES)
        return end

    cdef size_t _entries_bytes(self, const RecordHead *head) noexcept nogil:
        cdef size_t total = 0
        cdef Py_ssize_t at
        for at in range(self.used):
            total += _record_bytes(
                head, self.groups[self.order[at].group].length + MAX_MORE, ENTRY_BYTES
            )
        return total

    cdef void _put_units(self, char *data, const RecordHead *head) noexcept nogil:
        cdef const int32_t *queue = <const int32_t *> &self.queue_index[0]
        cdef const int64_t *offset = <const int64_t *> &self.queue_offset[0]
        cdef const char *unit = <const char *> &self.units[0]
        cdef Group *group
        cdef char *out
        cdef Py_ssize_t row
        for row in range(self.count):
            group = &self.groups[queue[row]]
            out = data + group.at
            memcpy(out, head.data, head.length)
            out += head.length
            out += _put_length(out, group.length + PLACE_BYTES)
            memcpy(out, self.names + group.name, group.length)
            out += group.length
            store_be64(out, offset[row])
            out += PLACE_BYTES
            out[0] = UNIT_BYTES
            memcpy(out + 1, unit, UNIT_BYTES)
            group.at = out + 1 + UNIT_BYTES - data
            unit += UNIT_BYTES

    cdef size_t _put_entries(self, char *data, size_t at, const RecordHead *head) noexcept nogil:
        """Put the ``max`` entries behind the units; return where the last one ends."""
        cdef char key[MAX_PREFIX + MAX_MORE]
        cdef char value[ENTRY_BYTES]
        cdef const Group *group
        cdef Py_ssize_t place
        cdef size_t topic_end
        for place in range(self.used):
            group = &self.groups[self.order[place].group]
            topic_end = group.length - TAIL_BYTES
            memcpy(key, self.names + group.name, topic_end)
            memcpy(key + topic_end, MAX_MIDDLE, MAX_MORE + 2)
            memcpy(key + topic_end + MAX_MORE + 2, self.names + group.name + topic_end + 1, 4)
            store_be64(value, group.last_phy)
            store_be64(value + 8, group.next_offset - 1)
            at += _put_key(data + at, head, key, group.length + MAX_MORE)
            at += _put_value(data + at, value, ENTRY_BYTES)
        return at
