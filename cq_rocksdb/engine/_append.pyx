# cython: language_level=3, boundscheck=False, wraparound=False
"""AppendJob: appends a batch of units to queues, as one write.

The fast path of ``BatchPlan``, for queues whose units follow their last one in one run. The reads
of the table of ends, the write and the update of the ends run without the interpreter's lock. Other
queues are left to the plan, whose part of the batch is included in the same write.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcpy, memset

from cqstore.cq_rocksdb.engine._capi cimport Handle, check, rocksdb
from cqstore.cq_rocksdb.engine._database cimport Database
from cqstore.cq_rocksdb.engine._groups cimport Group, QueueGroups
from cqstore.cq_rocksdb.engine._keys cimport (
    ENTRY_BYTES, MAX_MIDDLE, MAX_MORE, MAX_PREFIX, PLACE_BYTES, QUEUE_TAIL_BYTES, UNIT_BYTES,
)
from cqstore.cq_rocksdb.engine._states cimport ROW_FIELDS, Named, StateTable
from cqstore.cq_rocksdb.engine._write_batch cimport (
    BATCH_HEAD, COUNT_AT, WriteBatchColumns, RecordHead, head_of, put_key, put_length, put_value,
    record_bytes,
)
from cqstore.store.core._bytes cimport store64

cdef enum:
    KEPT_BYTES = 8 << 20  # size of a batch of 65,536 units with a 60-byte topic


cdef class AppendJob(QueueGroups):
    """Appends the units of a batch to their queues. One thread at a time.

    Call ``find``, ``rest``, ``follows``, ``write``, ``move`` in this order while ``is_fast``.
    """

    # ---- ends of its queues; the caller holds the table's lock

    def find(self, StateTable table not None):
        """Read the rows in the table; return the prefixes of the missing queues, for ``rest``."""
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
        """Set the rows of the queues that ``find`` returned as missing."""
        cdef Py_ssize_t at, next_row = 0
        cdef Group *group
        if rows.shape[1] != ROW_FIELDS:
            raise ValueError("rows must have four columns")
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            if group.slot < 0:
                if next_row >= rows.shape[0]:
                    raise ValueError("fewer rows than queues")
                memcpy(group.row, &rows[next_row, 0], sizeof(group.row))
                next_row += 1

    def follows(self):
        """Leave out queues whose units do not follow their end; return whether any is left."""
        cdef Py_ssize_t at
        cdef Group *group
        with nogil:
            for at in range(self.used):
                group = &self.groups[self.order[at].group]
                if group.first_offset - 1 != group.row[1] or group.first_phy <= group.row[0]:
                    group.is_irregular = self.has_irregular = True
            if self.has_irregular:
                self.leave_irregular()
        self.is_fast = self.used > 0
        return self.is_fast

    def irregular_queues(self):
        """Return a byte for each queue of the batch, 1 if it was left out; ``None``: none was."""
        cdef bytes marks
        cdef char *mark
        cdef Py_ssize_t at
        if not self.left_out:
            return None
        marks = PyBytes_FromStringAndSize(NULL, self.queues)
        mark = PyBytes_AS_STRING(marks)
        for at in range(self.queues):
            mark[at] = self.groups[at].is_irregular
        return marks

    def planned(self):
        """Return prefix, number in the batch, and new ``max`` entry of each queue, in key order."""
        cdef Py_ssize_t at
        cdef const Group *group
        cdef list planned = []
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            entry = (group.last_phy, group.next_offset - 1)
            prefix = (self.names + group.name)[:group.length]
            planned.append((prefix, self.order[at].group, entry))
        return planned

    def move(self, StateTable table not None):
        """Update the table after the write: all queues, or none if memory is short."""
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
            if not table.holds(group.slot, name, group.length):  # another queue has taken its slot
                group.slot = table.find(name, group.length, group.hash)
            if group.slot < 0:
                all_new[new].prefix, all_new[new].length = name, group.length
                all_new[new].hash, all_new[new].row = group.hash, group.row
                new += 1
            else:  # a reader may have updated the first unit meanwhile
                table.states[group.slot].row[0] = group.row[0]
                table.states[group.slot].row[1] = group.row[1]
        table.add_all(all_new, new)

    # ---- the write

    def write(
        self, Database database not None, int family, bytes key not None, bytes value not None,
        WriteBatchColumns others=None,
    ):
        """Write units, the ends of their queues and one entry in ``family``, and ``others``."""
        cdef char *error = NULL
        cdef Handle writes
        cdef size_t size = self._build(database, family, key, value)
        cdef const char *data = database.built.data
        cdef bint is_alone = others is None
        with nogil:
            writes = rocksdb.writebatch_create_from(data, size)
            if is_alone:
                rocksdb.write(database.db, database.write_options, writes, &error)
                rocksdb.writebatch_destroy(writes)
        if not is_alone:
            try:
                others.add_to(writes, database.families)
                with nogil:
                    rocksdb.write(database.db, database.write_options, writes, &error)
            finally:
                rocksdb.writebatch_destroy(writes)
        database.built.keep_at_most(KEPT_BYTES)
        database.release_iterators()
        check(error)

    def built(
        self, Database database not None, int family, bytes key not None, bytes value not None
    ):
        """Return the bytes that ``write`` passes to RocksDB, without ``others``."""
        cdef size_t size = self._build(database, family, key, value)
        try:
            return database.built.data[:size]
        finally:
            database.built.keep_at_most(0)

    cdef size_t _build(self, Database database, int family, bytes key, bytes value) except 0:
        """Build the write batch in RocksDB's format in ``database.built``; return its size."""
        cdef const char *key_bytes = key
        cdef const char *value_bytes = value
        cdef size_t key_length = len(key), value_length = len(value), at, size
        cdef RecordHead of_unit, of_entry
        cdef Py_ssize_t units = 0
        cdef uint32_t records
        cdef char *data
        database.check_open()
        if not self.is_fast:
            raise ValueError("the batch cannot take the fast path")
        of_unit = head_of(database.writes, database.families[0])
        of_entry = head_of(database.writes, database.families[family])
        with nogil:
            at = self._lay_out(&of_unit, &units)
            size = at + self._entries_bytes(&of_entry)
            size += record_bytes(&of_entry, key_length, value_length)
        database.built.make_room(size)
        data = database.built.data
        records = <uint32_t> (units + self.used + 1)
        with nogil:
            memset(data, 0, BATCH_HEAD)
            memcpy(data + COUNT_AT, &records, sizeof(records))  # little-endian, as the machine is
            self._put_units(data, &of_unit)
            at = self._put_entries(data, at, &of_entry)
            at += put_key(data + at, &of_entry, key_bytes, key_length)
            put_value(data + at, value_bytes, value_length)
        return size

    cdef size_t _lay_out(self, const RecordHead *head, Py_ssize_t *units) noexcept nogil:
        """Set where each queue's records begin; return the end of the last one. Counts units."""
        cdef size_t end = BATCH_HEAD
        cdef Py_ssize_t at
        cdef Group *group
        for at in range(self.used):
            group = &self.groups[self.order[at].group]
            group.at = end
            units[0] += group.count
            end += group.count * record_bytes(head, group.length + PLACE_BYTES, UNIT_BYTES)
        return end

    cdef size_t _entries_bytes(self, const RecordHead *head) noexcept nogil:
        cdef size_t total = 0
        cdef Py_ssize_t at
        for at in range(self.used):
            total += record_bytes(
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
            if group.is_irregular:
                unit += UNIT_BYTES
                continue
            out = data + group.at
            memcpy(out, head.data, head.length)
            out += head.length
            out += put_length(out, group.length + PLACE_BYTES)
            memcpy(out, self.names + group.name, group.length)
            out += group.length
            store64(out, offset[row])
            out += PLACE_BYTES
            out[0] = UNIT_BYTES
            memcpy(out + 1, unit, UNIT_BYTES)
            group.at = out + 1 + UNIT_BYTES - data
            unit += UNIT_BYTES

    cdef size_t _put_entries(self, char *data, size_t at, const RecordHead *head) noexcept nogil:
        """Append the ``max`` entries after the units; return the end of the last one."""
        cdef char key[MAX_PREFIX + MAX_MORE]
        cdef char value[ENTRY_BYTES]
        cdef const Group *group
        cdef Py_ssize_t place
        cdef size_t topic_end
        for place in range(self.used):
            group = &self.groups[self.order[place].group]
            topic_end = group.length - QUEUE_TAIL_BYTES
            memcpy(key, self.names + group.name, topic_end)
            memcpy(key + topic_end, MAX_MIDDLE, MAX_MORE + 2)
            memcpy(key + topic_end + MAX_MORE + 2, self.names + group.name + topic_end + 1, 4)
            store64(value, group.last_phy)
            store64(value + 8, group.next_offset - 1)
            at += put_key(data + at, head, key, group.length + MAX_MORE)
            at += put_value(data + at, value, ENTRY_BYTES)
        return at


def batch_bytes(Database database not None, int family, list units, list puts):
    """Return RocksDB's own encoding of a write of ``units`` and, in ``family``, ``puts``."""
    cdef size_t size = 0
    cdef const char *data
    cdef bytes key, value
    database.check_open()
    rocksdb.writebatch_clear(database.writes)
    for number, rows in ((0, units), (family, puts)):
        for key, value in rows:
            rocksdb.writebatch_put_cf(
                database.writes, database.families[<int> number], key, len(key), value, len(value)
            )
    data = rocksdb.writebatch_data(database.writes, &size)
    try:
        return data[:size]
    finally:
        rocksdb.writebatch_clear(database.writes)
