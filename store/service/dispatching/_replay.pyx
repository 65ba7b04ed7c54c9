# cython: language_level=3, boundscheck=False, wraparound=False
"""ReplayBatcher: adds scanned records to columns."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from cqstore.store.core._hashes cimport hash_on
from cqstore.store.core._layout cimport PREPARED, ROLLBACK, TRANSACTION
from cqstore.store.core._record cimport is_ascii
from cqstore.store.record._known cimport KnownKey, PyUnicode_AsUTF8AndSize, Value, take_key
from cqstore.store.record._properties cimport Property, decode_text, is_named, next_property
from cqstore.store.record._scan cimport AT_END, IRREGULAR, ORDINARY, BlockScan, Scanned
from cqstore.store.service.dispatching._columns cimport BatchColumns

cdef enum:
    PLACES = 1 << 18  # a power of two; 8 MB, of which only what is used exists
    TEXTS = 64
    MAX_TEXT = 255


cdef struct QueueSlot:
    # A queue that was found, with its number in the batch of that number; the batch holds the
    # topic.
    PyObject *topic
    int64_t queue_id, batch
    int index


cdef class ReplayBatcher:
    """Adds scanned records to batches; the slow path is in ``RecordBatcher``."""

    cdef BatchColumns _columns
    cdef object _note, _deleted, _scheduled, _tags_prefix, _blocks
    cdef BlockScan _scan  # of ``_blocks``, not at its end yet
    cdef list _texts
    cdef QueueSlot *_places
    cdef bint _keys_wanted, _tags_wanted

    def __dealloc__(self):
        free(self._places)

    def __init__(
        self, *, note, deleted, scheduled, tags_prefix, keys_wanted, tags_wanted
    ):
        self._columns, self._tags_prefix = BatchColumns(), tags_prefix
        self._texts = [None] * TEXTS
        self._note, self._deleted, self._scheduled = note, deleted, scheduled
        self._keys_wanted, self._tags_wanted = keys_wanted, tags_wanted

    def fill(self, blocks, result, units, keys, int64_t queues_from, index_from, int64_t full_at):
        """Add records of ``blocks`` until ``full_at`` units wait; return whether there may be more.

        Units are added for records from ``queues_from`` on, keys for those from ``index_from`` on,
        none if it is ``None``. Items that are records are used as such. If the batch is full within
        a block, the next call for these ``blocks`` continues there.
        """
        cdef int64_t count = 0, index_start = -1 if index_from is None else index_from
        cdef bint has_index = index_from is not None and self._keys_wanted, is_full = False
        cdef bint none_deleted = not len(self._deleted)  # no topic is deleted meanwhile
        cdef BatchColumns columns = self._begin(blocks, units, keys)
        cdef BlockScan scan = self._scan, last_scan = None
        cdef Scanned record
        cdef int stepped
        first = last = None
        try:
            while not is_full:
                if scan is None:
                    item = next(blocks, None)
                    if item is None:
                        break
                    if type(item) is BlockScan:
                        scan = item
                        continue
                    stepped = IRREGULAR
                else:
                    stepped = scan.step()
                    item = scan.slow_step() if stepped == IRREGULAR else None
                    if stepped == AT_END or (stepped == IRREGULAR and item is None):
                        scan = None
                        continue
                count += 1
                if stepped == ORDINARY:
                    record, last_scan = scan.found, scan
                    if first is None:
                        first = scan.record()
                else:
                    _take_apart(<tuple> item, &record)
                    last, last_scan = item, None
                    if first is None:
                        first = last
                if not (
                    (none_deleted or not self._has_gone(&record))
                    and self._add(columns, &record, queues_from, has_index, index_start)
                ):
                    if stepped == ORDINARY:
                        item = scan.record()
                    self._note(item, units, keys, queues_from, index_from)
                is_full = columns.units.units.used >= full_at
        finally:
            result.note_several(first, last if last_scan is None else last_scan.record(), count)
            self._scan = scan if is_full else None
            if not is_full:
                self._blocks = None
        return is_full

    cdef BatchColumns _begin(self, blocks, units, keys):
        if blocks is not self._blocks:
            self._blocks, self._scan = blocks, None
        return self._columns.of(units, keys)

    cdef bint _has_gone(self, const Scanned *record) except -1:
        """Return whether the record is of a deleted incarnation of its topic."""
        return self._deleted.has_record(<object> record.topic, record.phy_offset)

    cdef bint _add(
        self, BatchColumns columns, Scanned *record, int64_t queues_from, bint has_index,
        int64_t index_start,
    ) except -1:
        """Add a plain record; return whether it is plain."""
        cdef Property found
        cdef tuple tags = None
        cdef Value words = Value(NULL, 0), uniq_key = Value(NULL, 0)
        cdef KnownKey tags_key
        cdef const KnownKey *tags_wanted = NULL
        if <object> record.topic == self._scheduled:
            return False
        found.after = record.properties
        while next_property(&found, record.properties + record.properties_size):
            if found.name_size >= 6 and memcmp(found.name, b"INNER_", 6) == 0:
                return False
            if is_named(&found, b"TAGS", 4):
                tags = self._tags(found.value, found.value_size)
            elif is_named(&found, b"KEYS", 4):
                words = Value(found.value, found.value_size)
            elif is_named(&found, b"UNIQ_KEY", 8):
                uniq_key = Value(found.value, found.value_size)
        if record.phy_offset >= queues_from:
            if not record.flags & PREPARED:
                index = self._index_of(columns, record)
                columns.units.make_room(1)
                columns.units.add_at(
                    index, record.queue_offset, record.phy_offset, <int32_t> record.size,
                    tags[1] if tags is not None else 0, record.timestamp,
                )
            columns.units.end_phy_offset = record.phy_offset + record.size
        if (
            has_index and record.phy_offset >= index_start
            and record.flags & TRANSACTION != ROLLBACK
        ):
            held_key, held_words = _readable(&uniq_key), _readable(&words)
            if tags is not None and self._tags_wanted:
                take_key(<PyObject *> tags[2], &tags_key)
                tags_wanted = &tags_key
            columns.add_record(
                <object> record.topic, &uniq_key, &words, tags_wanted,
                record.phy_offset, record.timestamp,
            )
        return True

    cdef int _index_of(self, BatchColumns columns, Scanned *record) except -1:
        """Return the number of a record's queue in the batch; a new queue gets the next number."""
        if self._places == NULL:  # only now: most openings replay nothing, and zeros take 1 ms
            self._places = <QueueSlot *> calloc(PLACES, sizeof(QueueSlot))
            if self._places == NULL:
                raise MemoryError
        cdef size_t at = <size_t> record.queue_id + (<size_t> record.topic >> 4) * 31
        cdef QueueSlot *place = &self._places[at & (PLACES - 1)]
        if (
            place.batch == columns.batch and place.topic == record.topic
            and place.queue_id == record.queue_id
        ):
            return place.index
        cdef int index = columns.units.index((<object> record.topic, record.queue_id))
        if (<tuple> columns.units.queues[index])[0] is <object> record.topic:  # else not held
            place.topic, place.queue_id, place.index = record.topic, record.queue_id, index
            place.batch = columns.batch
        return index

    cdef tuple _tags(self, const char *text, Py_ssize_t size):
        """Return the bytes of a tag, its code, and its index key."""
        cdef uint32_t value = 0
        cdef Py_ssize_t at
        if size > MAX_TEXT:
            return self._learn_tags(text, size)
        for at in range(size):
            value = value * 31 + <unsigned char> text[at]
        known = self._texts[value % TEXTS]
        if known is not None:
            data = (<tuple> known)[0]
            if len(<bytes> data) == size and not memcmp(PyBytes_AS_STRING(data), text, size):
                return known
        known = self._texts[value % TEXTS] = self._learn_tags(text, size)
        return known

    cdef tuple _learn_tags(self, const char *text, Py_ssize_t size):
        tags = decode_text(text, size)
        code = <int32_t> hash_on(0, tags)
        return PyBytes_FromStringAndSize(text, size), code, self._tags_prefix + tags


cdef int _take_apart(tuple record, Scanned *found) except -1:
    """Read a ``ScannedRecord``; the pointers in ``found`` are valid as long as it lives."""
    cdef bytes properties = record[7]
    found.phy_offset, found.size, found.topic = record[0], record[1], <PyObject *> record[2]
    found.queue_id, found.queue_offset, found.flags = record[3], record[4], record[5]
    found.timestamp = record[6]
    found.properties = PyBytes_AS_STRING(properties)
    found.properties_size = PyBytes_GET_SIZE(properties)
    return 0


cdef object _readable(Value *value):
    """Replace an invalid UTF-8 value as ``decode_text`` does; return the object that holds it."""
    if value.text == NULL or is_ascii(value.text, value.size):
        return None
    text = decode_text(value.text, value.size)
    value.text = PyUnicode_AsUTF8AndSize(text, &value.size)
    return text
