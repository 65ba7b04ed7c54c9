# cython: language_level=3, boundscheck=False, wraparound=False
"""Pull and Pulls: RocketMQ's rules of a pull: its limits, its status, which records it takes.

``Pulls.get`` reads units and records in compiled code. If one of them is not as nearly all are, the
pull begins anew in Python (``Puller.get_from``), which offers each unit to a ``Pull`` and has the
error messages. Nothing from disk is trusted: every read is bounded by the object that it reads, and
each value that a bound depends on is read once.

Source: RocketMQ ``DefaultMessageStore.getMessage``, ``ExpressionMessageFilter``.
"""

cimport cython
from cpython.number cimport PyNumber_Index
from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport realloc

from cqstore.store.core._arguments cimport PyLong_AsLongLongAndOverflow
from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport fetch_ahead, load32, load64
from cqstore.store.core._crc32 cimport crc_of, crc_prepare
from cqstore.store.core._faults cimport is_of_whole_map, log_faults_seen
from cqstore.store.core._layout cimport (
    AT_BORN, AT_CRC, AT_MAGIC, AT_PHY_OFFSET, AT_QUEUE_OFFSET, AT_SIZE_OF_UNIT, AT_SYS_FLAG,
    AT_TAGS_CODE_OF_UNIT, MAGIC_V1, MAGIC_V2, MIN_RECORD, PASSED_OVER, UNIT_OF_FILES,
)
from cqstore.store.core._record cimport is_ascii
from cqstore.store.log._log cimport FastLog, Part
from cqstore.store.queue._estimate cimport FastFilter
from cqstore.store.record._parse cimport Found, Places, ends_in_file, parse_record
from cqstore.store.record._properties cimport Property, decode_text, is_named, next_property
from cqstore.store.service._results cimport GetMessageResult
from cqstore.store.service.runtime._histogram cimport Histogram

from cqstore.store.errors import CorruptionError
from cqstore.store.record.record_layout import MAX_QUEUE_OFFSET
from cqstore.store.service.pull_status import GetMessageStatus

cdef extern from *:
    """
    #include <time.h>

    static inline double clock_seconds(void) { /* time.perf_counter() */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return now.tv_sec + 1e-9 * now.tv_nsec;
    }
    """
    double clock_seconds() noexcept nogil

cdef enum:
    MIN_BYTES = 100
    MAX_BYTES = 128 << 20
    MIN_FURTHER = 32  # units that are read at once, after the first ones
    MAX_FURTHER = 800
    PREFETCHED = 64  # records
    STATUSES = 16
    DECLINED = 0
    ACCEPTED = 1
    FILTERED = 2

cdef int64_t MAX_NUMBER = <int64_t> 1 << 62
cdef int64_t _max_queue_offset = MAX_QUEUE_OFFSET
cdef object _found = GetMessageStatus.FOUND
cdef object _no_match = GetMessageStatus.NO_MATCHED_MESSAGE
cdef object _removing = GetMessageStatus.MESSAGE_WAS_REMOVING
cdef object _too_small = GetMessageStatus.OFFSET_TOO_SMALL
cdef object _overflow_one = GetMessageStatus.OFFSET_OVERFLOW_ONE
cdef object _overflow_badly = GetMessageStatus.OFFSET_OVERFLOW_BADLY
cdef object _no_message = GetMessageStatus.NO_MESSAGE_IN_QUEUE
cdef int _number_of_found = _found.value

crc_prepare()


cdef class Pulls:
    """Limits and counts of the pulls of one store. Any thread."""

    cdef FastLog log
    cdef readonly object queues
    cdef readonly Histogram seconds
    """Durations of all pulls."""
    cdef readonly int64_t messages, total_bytes
    """Messages and bytes of records that all pulls returned."""
    cdef int64_t counts[STATUSES]
    cdef int64_t memory_bytes, memory_count, disk_bytes, disk_count
    cdef int64_t in_memory, filtered, per_file
    cdef bint checks_crc, has_ext

    def __init__(self, config, log, queues, int64_t in_memory):
        """Set the limits; ``in_memory``: bytes before the end of the log that are in memory."""
        assert len(GetMessageStatus) < STATUSES
        self.log, self.queues, self.seconds = FastLog(log), queues, Histogram()
        self.memory_bytes = config.max_transfer_bytes_on_message_in_memory
        self.memory_count = max(config.max_transfer_count_on_message_in_memory, 1)
        self.disk_bytes = config.max_transfer_bytes_on_message_in_disk
        self.disk_count = max(config.max_transfer_count_on_message_in_disk, 1)
        self.in_memory, self.per_file = in_memory, max(queues.units_per_file, 1)
        self.filtered = -(-config.max_filter_message_size // UNIT_OF_FILES)
        self.checks_crc = config.check_crc_on_pull
        self.has_ext = config.enable_consume_queue_ext

    def get(self, topic, queue_id, offset, max_msgs, tags, max_total_bytes=MAX_BYTES):
        """Pull at most ``max_msgs`` messages, see ``MessageStore.get_message``."""
        cdef Pull pull = Pull.__new__(Pull)
        cdef bint is_done
        pull.begin(self, offset, max_msgs, tags, max_total_bytes)
        reads = self.queues.fast_reads
        if reads is not None:
            is_done = pull.read(reads, topic, queue_id)
        else:
            is_done = pull.read(self.queues.queue(topic, queue_id), None, None)
        if is_done:
            return pull.finished()
        return self.get_otherwise(topic, queue_id, offset, max_msgs, tags, max_total_bytes)

    @property
    def statuses(self):
        """Number of pulls per status, including zeros."""
        return {status: self.counts[status.value] for status in GetMessageStatus}


@cython.final
@cython.no_gc
@cython.freelist(8)
cdef class Pull:
    """One pull in progress: takes units in order, and adds their records to its ``result``."""

    cdef Pulls rules
    cdef readonly GetMessageResult result
    cdef readonly int64_t first, end
    """Number of units to read first, and the offset where it ends, with records or without."""
    cdef object tags
    cdef FastFilter codes
    cdef list files
    cdef double started
    cdef list offsets  # of the records, unless they are consecutive
    cdef int64_t offset, scan, max_msgs, max_bytes, messages, total, memory_start, before, following
    cdef int32_t last_file
    cdef bint checks_heads
    cdef Py_ssize_t room
    cdef Part part

    def __init__(self, Pulls rules not None, offset, max_msgs, tags, max_total_bytes):
        if self.rules is not None:
            raise TypeError("the pull has begun already")
        self.begin(rules, offset, max_msgs, tags, max_total_bytes)

    cdef bint begin(self, Pulls rules, offset, max_msgs, tags, max_total_bytes) except 0:
        """Set the limits of this pull."""
        cdef int64_t wanted = clamped(max_msgs), at = clamped(offset)
        self.started = clock_seconds()
        self.rules, self.offset, self.files = rules, at, []
        self.max_bytes = max(MIN_BYTES, min(clamped(max_total_bytes), MAX_BYTES))
        self.max_msgs = max(wanted, 1)
        self.scan = min(max(rules.filtered, wanted), rules.per_file - at % rules.per_file)
        self.first = min(self.scan, self.max_msgs, max(rules.memory_count, rules.disk_count))
        self.memory_start = rules.log.end() - rules.in_memory
        self.checks_heads = not rules.checks_crc
        if tags is not None and not tags.takes_all:
            self.tags, self.codes, self.checks_heads = tags, tags.fast, False
        self.result = GetMessageResult.__new__(GetMessageResult)
        self.result.files = self.files
        return True

    # ---- limits and status

    cpdef bint starts(self, int64_t low, int64_t high) except -1:
        """Set the ends of the queue; return whether the pull starts in it, else set the status."""
        cdef GetMessageResult result = self.result
        result.min_offset, result.max_offset = low, high
        result.total_bytes = 0
        if low <= self.offset < high:
            self.end, result.status = min(self.offset + self.scan, high), _no_match
            return True
        result.next_begin_offset = high
        if high == 0:
            result.status = _no_message
        elif self.offset < low:
            result.status, result.next_begin_offset = _too_small, low
        else:
            result.status = _overflow_one if self.offset == high else _overflow_badly
        return False

    cpdef int64_t further(self, int64_t at):
        """Return how many units to read from ``at`` on; 0: the pull is complete."""
        if at >= self.end or self.messages >= min(
            self.max_msgs, max(self.rules.memory_count, self.rules.disk_count)
        ):
            return 0
        return min(max(at - self.offset, MIN_FURTHER), MAX_FURTHER, self.end - at)

    cdef inline bint _is_full(self, int64_t phy, int64_t size, int64_t messages) noexcept:
        """Return whether the result is complete without this unit."""
        cdef int64_t total = self.total + size
        if not self.result.count:
            return False
        if messages > self.max_msgs - self.messages or total > self.max_bytes:
            return True
        if phy >= self.memory_start:
            return total > self.rules.memory_bytes or self.messages >= self.rules.memory_count
        return total > self.rules.disk_bytes or self.messages >= self.rules.disk_count

    cpdef GetMessageResult finished(self):
        """Count the pull, and return its result. Once."""
        cdef Pulls rules = self.rules
        cdef GetMessageResult result = self.result
        cdef int status = _number_of_found if result.count else <int> result.status._value_
        rules.seconds.observe(clock_seconds() - self.started)
        rules.counts[status] += 1
        rules.messages += self.messages
        rules.total_bytes += self.total
        if result.count:
            result.total_bytes = self.total
        if result.next_begin_offset is None:
            result.next_begin_offset = self.offset
        return result

    # ---- records

    cdef inline int _accept(self, const uint8_t *record, int64_t phy, int64_t size) except -1:
        """Return whether the pull takes the record of ``size`` bytes; declined: ask Python.

        A record must have that size and phy offset, and not be a filler. The rest is checked when
        the message is read (``GetMessageResult.messages``), or here if it is needed here: for a
        filter or a CRC. Records on disk are checked here too.
        """
        cdef int32_t magic
        if size < MIN_RECORD or load32(record) != size or load64(record + AT_PHY_OFFSET) != phy:
            return DECLINED
        magic = load32(record + AT_MAGIC)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or load32(record + AT_SYS_FLAG) & PASSED_OVER:
            return DECLINED
        if self.checks_heads and phy >= self.memory_start:
            return ACCEPTED
        return self._accept_parts(record, size)

    cdef int _accept_parts(self, const uint8_t *record, int64_t size) except -1:
        """Return the result of ``_accept`` for a record whose head is valid."""
        cdef Places places
        cdef uint32_t crc
        if not (
            parse_record(record, size, &places)
            # another topic may be invalid UTF-8
            and is_ascii(<const char *> record + places.topic, places.topic_end - places.topic)
            and 0 <= load64(record + AT_QUEUE_OFFSET) < _max_queue_offset
        ):
            return DECLINED
        if self.rules.checks_crc and places.body_size:
            with nogil:
                crc = crc_of(<const char *> record + places.body, places.body_size)
            if <int32_t> (crc & 0x7FFFFFFF) != load32(record + AT_CRC):
                return DECLINED
        is_taken = self.tags is None or tag_of(record, &places) in self.tags.tags
        if log_faults_seen() or not (ends_in_file(record, &places) or is_of_whole_map(record)):
            return DECLINED
        return ACCEPTED if is_taken else FILTERED

    cdef inline bint _take(
        self, int64_t at, const uint8_t *data, int64_t size, int64_t messages
    ) except 0:
        """Add a record of the last of the files to the result."""
        cdef GetMessageResult result = self.result
        cdef Found *found
        if result.count == self.room or at != self.following:
            self._make_room(at)
        found = result.found + result.count
        found.data, found.size, found.file = data, <int32_t> size, self.last_file
        result.count += 1
        if self.offsets is not None:
            self.offsets.append(at)
        self.following = at + 1
        self.messages += messages
        self.total += size
        return True

    cdef bint _make_room(self, int64_t at) except 0:
        """Prepare for a record that is the first one, is one too many, or follows a gap."""
        cdef GetMessageResult result = self.result
        cdef Py_ssize_t room = 2 * self.room + self.first
        cdef Found *found
        if not result.count:
            result.first, result.status = at, _found
        elif self.offsets is None and at != self.following:
            result._offsets = self.offsets = list(range(result.first, result.first + result.count))
        if result.count == self.room:
            found = <Found *> realloc(result.found, room * sizeof(Found))
            if found == NULL:
                raise MemoryError
            result.found, self.room = found, room
        return True

    def add(self, int64_t at, int64_t phy, int64_t size, tags_code, int64_t messages=1):
        """Take or skip one unit; False: the result is complete without it."""
        cdef BufferRef held
        cdef int accepted
        if self._is_full(phy, size, messages):
            return False
        self.result.next_begin_offset = at + messages
        if self.tags is not None and not self.tags.may_match(tags_code):
            return True
        try:
            held = BufferRef(self.rules.log.log.view(phy, size))
            accepted = self._accept(<const uint8_t *> held.buffer.buf, phy, size)
            if accepted == DECLINED:
                message = self.rules.checked(<object> held.buffer.obj, phy)
                accepted = self.tags is None or self.tags.matches(message)
        except CorruptionError as exc:
            self._leave_out(at, phy, size, exc)
            return True
        if accepted == ACCEPTED:
            self.files.append(held)
            self.last_file = <int32_t> len(self.files) - 1
            self._take(at, <const uint8_t *> held.buffer.buf, size, messages)
        return True

    cdef bint _leave_out(self, int64_t at, int64_t phy, int64_t size, fault) except 0:
        """Note a damaged record, or one whose file has expired since the unit was read."""
        if phy >= self.rules.log.min_phy_offset():
            self.result.leave_out(at, phy, size, fault)
            self.result._records = None  # more may follow
        elif not self.result.count:
            self.result.status = _removing
        return True

    # ---- the fast path

    cdef bint read(self, source, topic, queue_id) except -1:
        """Read the queue; False: something is not as usual, and nothing was done.

        ``source``: a ``FastReads``; with ``topic`` ``None`` a ``ConsumeQueue``.
        """
        cdef int64_t at = self.offset, count = self.first, low, high, number
        cdef Py_ssize_t stride
        cdef BufferRef units
        cdef const uint8_t *unit
        while count > 0:
            if topic is None:
                found = source.fast_units(at, count)
            else:
                found = source.fast_units(topic, queue_id, at, count)
            if found is None:
                return False
            low, high, data, stride = found
            if at == self.offset and not self.starts(low, high):
                return True
            units = BufferRef(data)
            if stride < UNIT_OF_FILES or units.buffer.len < stride:
                return False
            count = min(count, units.buffer.len // stride)
            unit = <const uint8_t *> units.buffer.buf
            if not self._prefetch(unit, count, stride):
                return False
            for number in range(count):
                if self._is_full(load64(unit), load32(unit + AT_SIZE_OF_UNIT), 1):
                    count = 0
                    break
                if not self._add_mapped(at, unit):
                    return False
                at += 1
                unit += stride
            if count:
                count = self.further(at)
            if not count:
                self.result.next_begin_offset = at
                return self._is_sound()
        return False

    cdef bint _prefetch(self, const uint8_t *unit, int64_t count, Py_ssize_t stride) except -1:
        """Prefetch records, which are far apart, together; False: the first is not in the log."""
        cdef int64_t number, phy = load64(unit)
        cdef int32_t size = 0
        cdef const uint8_t *record = NULL
        if not self._open(phy):
            return False
        for number in range(min(count, PREFETCHED)):
            phy = load64(unit + number * stride)
            if self.part.start <= phy < self.part.end:
                size = load32(unit + number * stride + AT_SIZE_OF_UNIT)
                record = self.part.data + (phy - self.part.start)
                fetch_ahead(record)
                fetch_ahead(record + AT_BORN)
        if record != NULL:  # the last byte, which `_is_sound` reads
            fetch_ahead(record + max(size, 1) - 1)
        return True

    cdef inline bint _open(self, int64_t phy) except -1:
        """Make the file that contains ``phy`` the current one; False: it is not in the log."""
        return (
            self.part.start <= phy < self.part.end and phy >= self.before or self._open_file(phy)
        )

    cdef bint _open_file(self, int64_t phy) except -1:
        """Do what ``_open`` does for a file that is not the current one.

        Units of a queue are ascending: a file is sound up to the last record read, if that is.
        """
        if phy < 0 or not self._is_sound():
            return False
        self.before = phy
        if not self.rules.log.open(phy, &self.part, self.files):
            return False
        self.last_file = <int32_t> len(self.files) - 1
        return True

    cdef inline bint _add_mapped(self, int64_t at, const uint8_t *unit) except -1:
        """Take or skip one unit whose record is in a map; False: something is not as usual."""
        cdef int64_t phy = load64(unit)
        cdef int32_t size = load32(unit + AT_SIZE_OF_UNIT)
        cdef const uint8_t *record
        cdef int accepted
        if size < MIN_RECORD or phy < 0:  # a hole
            return False
        if self.tags is not None:
            accepted = self._may_match(load64(unit + AT_TAGS_CODE_OF_UNIT))
            if accepted != ACCEPTED:
                return accepted == FILTERED
        if not self._open(phy) or size > self.part.end - phy:
            return False
        self.before = phy
        record = self.part.data + (phy - self.part.start)
        accepted = self._accept(record, phy, size)
        if accepted == ACCEPTED:
            self._take(at, record, size, 1)
        return accepted != DECLINED

    cdef int _may_match(self, int64_t code) except -1:
        """Return whether the filter accepts a tags code; declined: it may be an address."""
        if code < INT32_MIN and self.rules.has_ext:
            return DECLINED
        if self.codes.matches(code) if self.codes is not None else self.tags.may_match(code):
            return ACCEPTED
        return FILTERED

    cdef bint _is_sound(self) noexcept:
        """Return whether the last record taken is valid, and all before it in its file."""
        cdef const Found *last
        cdef Places places
        if not self.result.count:
            return True
        last = self.result.found + self.result.count - 1
        if log_faults_seen():
            return False
        if last.data[last.size - 1] != 0:
            return True
        if parse_record(last.data, last.size, &places) and ends_in_file(last.data, &places):
            return True
        return is_of_whole_map(last.data)


cdef inline int64_t clamped(number) except? -1:
    """Return a whole number, limited to a quarter of what 64 bits hold."""
    cdef int overflow = 0
    cdef int64_t found = PyLong_AsLongLongAndOverflow(
        number if type(number) is int else PyNumber_Index(number), &overflow
    )
    return max(-MAX_NUMBER, min(found if not overflow else overflow * MAX_NUMBER, MAX_NUMBER))


cdef object tag_of(const uint8_t *record, const Places *places):
    """Return the tag of the record, or ``None``."""
    cdef const char *end = <const char *> record + places.size
    cdef Property named
    found = None
    named.after = <const char *> record + places.properties
    while next_property(&named, end):
        if is_named(&named, b"TAGS", 4):
            found = decode_text(named.value, named.value_size)
    return found
