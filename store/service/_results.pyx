# cython: language_level=3, boundscheck=False, wraparound=False
"""Results of a pull and of a query. Views, offsets and messages are created on access.

The slow path is in ``cqstore.store.service.pull_status``.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._faults cimport again_if_lost, log_faults_seen
from cqstore.store.record._parse cimport Found, Places, ends_in_file, parse_record
from cqstore.store.record._stored cimport StoredMessage, messages_of

from cqstore.store.service.pull_status import DamagedRecord, GetMessageStatus, decoded

# As a message: no reference cycle is possible here.
@cython.no_gc
@cython.freelist(16)
cdef class GetMessageResult:
    """The result of one pull.

    ``records`` are views of the log (see ``MappedFile.select``: hold them for one request only), in
    queue order; ``queue_offsets`` are their offsets. Continue at ``next_begin_offset``.

    A record that is not where its unit points is in ``damaged`` instead; a pull that found nothing
    else returns ``MESSAGE_WAS_REMOVING``, as RocketMQ does for records that it cannot read.
    """

    # Until `records` is read, it references each log file with records once, and stores their
    # positions. Each message keeps only its own file alive, not the others nor this result.

    __match_args__ = (
        "status", "next_begin_offset", "min_offset", "max_offset", "records", "queue_offsets",
        "total_bytes", "hole", "damaged",
    )
    __hash__ = None

    def __init__(
        self, status, next_begin_offset, min_offset, max_offset, records=None, queue_offsets=None,
        total_bytes=0, hole=None, damaged=None,
    ):
        self.count = 0  # existing values stay: other threads may be reading them
        self.status, self.next_begin_offset = status, next_begin_offset
        self.min_offset, self.max_offset = min_offset, max_offset
        self._records, self._offsets = records, queue_offsets
        self.total_bytes, self.hole, self._damaged = total_bytes, hole, damaged

    def __dealloc__(self):
        free(self.found)

    @property
    def records(self):
        """Views of the log, in queue order."""
        cdef Py_ssize_t at, start
        cdef BufferRef held
        cdef list made
        if self._records is None:
            made = []
            for at in range(self.count):
                held = self.files[self.found[at].file]
                start = self.found[at].data - <const uint8_t *> held.buffer.buf
                made.append(held.slice(start, start + self.found[at].size))
            if self._records is None:  # no other thread has created them meanwhile
                self._records = made
        return self._records

    @records.setter
    def records(self, records):
        self._records = records

    @property
    def queue_offsets(self):
        """The queue offsets of the records."""
        if self._offsets is None:
            self._offsets = list(range(self.first, self.first + self.count))
        return self._offsets

    @queue_offsets.setter
    def queue_offsets(self, queue_offsets):
        self._offsets = queue_offsets

    @property
    def damaged(self):
        """Damaged records before ``next_begin_offset``, which the pull skipped."""
        if self._damaged is None:
            self._damaged = []
        return self._damaged

    @damaged.setter
    def damaged(self, damaged):
        self._damaged = damaged

    @property
    def raw(self):
        """The bytes of all records in queue order, as a broker sends them to a client: a copy."""
        cdef bytes gathered
        cdef char *at
        cdef int64_t total = 0
        cdef Py_ssize_t number
        cdef const Found *found
        cdef Places places
        cdef bint whole = True
        if self._records is not None:
            return b"".join(self._records)
        for number in range(self.count):
            total += self.found[number].size
        gathered = PyBytes_FromStringAndSize(NULL, total)
        at = PyBytes_AS_STRING(gathered)
        for number in range(self.count):
            found = &self.found[number]
            memcpy(at, found.data, found.size)
            whole = whole and parse_record(<const uint8_t *> at, found.size, &places) and (
                ends_in_file(<const uint8_t *> at, &places)
            )
            at += found.size
        return gathered if whole and not log_faults_seen() else self._read_again(gathered)

    cdef bytes _read_again(self, bytes gathered):
        """Return the bytes of the records; those whose map is not valid come from its file."""
        cdef Py_ssize_t number, at = 0
        cdef list parts = []
        for number in range(self.count):
            again = again_if_lost(self.found[number].data, self.found[number].size)
            if again is not None:
                StoredMessage(again)  # refuses what is left of a record
            parts.append(again or gathered[at:at + self.found[number].size])
            at += self.found[number].size
        return b"".join(parts)

    def record_count(self):
        """Return the number of records, without creating their views."""
        return len(self._records) if self._records is not None else self.count

    def messages(self):
        """Return the decoded records; body and properties are decoded on access.

        A record that cannot be decoded is moved from ``records`` and ``queue_offsets`` to
        ``damaged``.
        """
        cdef list made
        if self._records is not None:
            return decoded(self)
        made = messages_of(self.files, self.found, self.count)
        return decoded(self) if made is None else made

    def leave_out(self, queue_offset, phy_offset, size, fault):
        """Record a damaged record, and the matching status if nothing was found so far."""
        self.damaged.append(DamagedRecord(queue_offset, phy_offset, size, str(fault)))
        if not self.records:
            self.status = GetMessageStatus.MESSAGE_WAS_REMOVING

    def _fields(self):
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    def __repr__(self):
        fields = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
        fields[4] = f"records=<{len(self.records)} views>"
        return f"GetMessageResult({', '.join(fields)})"

    def __reduce__(self):
        fields = list(self._fields())
        fields[4] = [bytes(record) for record in fields[4]]  # views are valid in this process only
        return type(self), tuple(fields)


cdef class QueryMessageResult(list):
    """The newest messages with a key, in log order: a list with a flag for more.

    ``has_more``: older messages match the query too; use a larger ``max_num`` to get them.
    """

    def __init__(self, messages=(), *, bint has_more=False):
        list.__init__(self, messages)
        self.has_more = has_more

    def __reduce__(self):
        return _query_result, (list(self), self.has_more)


def _query_result(messages, has_more):
    return QueryMessageResult(messages, has_more=has_more)
