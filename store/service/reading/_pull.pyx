# cython: language_level=3, boundscheck=False, wraparound=False
"""FastPull: pulls without a filter; Pulls: the entry point.

Anything that is not plain takes the slow path in Python, which decides what is valid and has the
error messages. Nothing from disk is trusted: every read is bounded by the object that it reads, and
each value that a bound depends on is read once.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from cqstore.store.core._arguments cimport is_small
from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport fetch_ahead, load32, load64
from cqstore.store.core._faults cimport is_of_whole_map, log_faults_seen
from cqstore.store.core._layout cimport (
    AT_BORN, AT_MAGIC, AT_PHY_OFFSET, AT_SIZE_OF_UNIT, AT_SYS_FLAG, MAGIC_V1, MIN_RECORD,
    PASSED_OVER, UNIT_OF_FILES,
)
from cqstore.store.log._log cimport FastLog, Part
from cqstore.store.record._parse cimport Found, Places, ends_in_file, parse_record
from cqstore.store.service._results cimport GetMessageResult
from cqstore.store.service.runtime._histogram cimport Histogram

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
    MAX_AT_ONCE = 1024
    MIN_BYTES = 100
    MAX_BYTES = 128 << 20

cdef object _status_found = GetMessageStatus.FOUND
cdef object _too_small = GetMessageStatus.OFFSET_TOO_SMALL
cdef object _overflow_one = GetMessageStatus.OFFSET_OVERFLOW_ONE
cdef object _overflow_badly = GetMessageStatus.OFFSET_OVERFLOW_BADLY
cdef object _no_message = GetMessageStatus.NO_MESSAGE_IN_QUEUE


cdef class FastPull:
    """Complete pulls of one store on the fast path; other pulls take the slow path.

    Plain pulls have no filter and no CRC to check; their units exist, and the records are in
    memory, in the log and in place. Any thread.
    """

    cdef FastLog log
    cdef object meter
    cdef Histogram seconds
    cdef int64_t max_bytes, max_count, in_memory, filtered, per_file
    cdef readonly int64_t found, messages, total_bytes
    """Pulls that found messages on this path, with the numbers of their messages and bytes."""

    def __init__(
        self, log, meter, int64_t max_bytes, int64_t max_count, int64_t in_memory,
        int64_t filtered, int64_t per_file,
    ):
        """Set the log and the limits.

        Args:
            log: the log for a ``FastLog``.
            meter: its ``seconds`` get the duration of the pulls, and ``took`` is called for those
                that found nothing.
            max_bytes: limit of the bytes of records that one pull returns from memory.
            max_count: limit of the number of these records.
            in_memory: bytes before the end of the log that count as in memory.
            filtered: units that a filter may skip; they limit a pull without a filter too.
            per_file: units per queue file; no pull crosses its end.
        """
        self.log = FastLog(log)
        self.meter, self.seconds = meter, meter.seconds
        self.max_bytes, self.max_count = max_bytes, max(max_count, 1)
        self.in_memory, self.filtered, self.per_file = in_memory, filtered, max(per_file, 1)

    def get(self, queue, offset, max_msgs, max_total_bytes):
        """Pull from ``queue``; ``None``: nothing was done, because the pull is not plain."""
        cdef double started = clock_seconds()
        cdef int64_t limit, count = self._count(offset, max_msgs, max_total_bytes, &limit)
        if count < 1:
            return None
        found = queue.fast_units(offset, count)
        return self._answer(started, found, offset, limit, max_total_bytes)

    cdef object named(self, reads, topic, queue_id, offset, max_msgs, max_total_bytes):
        """Pull by the name of the queue, if ``reads``, a ``FastReads``, supports it."""
        cdef double started = clock_seconds()
        cdef int64_t limit, count = self._count(offset, max_msgs, max_total_bytes, &limit)
        if count < 1:
            return None
        found = reads.fast_units(topic, queue_id, offset, count)
        return self._answer(started, found, offset, limit, max_total_bytes)

    cdef int64_t _count(self, offset, max_msgs, max_total_bytes, int64_t *limit) except -2:
        """Return the number of units to read, and the limit of units to take; 0: not plain."""
        if not (is_small(offset) and is_small(max_msgs) and is_small(max_total_bytes)):
            return 0
        limit[0] = max(<int64_t> max_msgs, 1)
        return min(
            limit[0], max(self.filtered, <int64_t> max_msgs),
            self.per_file - <int64_t> offset % self.per_file,
        )

    cdef object _answer(self, double started, found, int64_t at, int64_t limit, int64_t max_bytes):
        """Return the result, see ``get``."""
        cdef int64_t low, high
        cdef Py_ssize_t stride
        cdef BufferRef units
        cdef GetMessageResult result
        if found is None:
            return None
        low, high, data, stride = found
        result = GetMessageResult.__new__(GetMessageResult)
        result.min_offset, result.max_offset = low, high
        result.total_bytes, result.hole = 0, None
        if not low <= at < high:
            self._elsewhere(result, at, low, high)
            self.meter.took(clock_seconds() - started, result)
            return result
        units = BufferRef(data)
        if stride < UNIT_OF_FILES or not self._sweep(
            result, <const uint8_t *> units.buffer.buf, min(units.buffer.len // stride, limit),
            stride, at, max(MIN_BYTES, min(max_bytes, MAX_BYTES)),
        ):
            return None
        self.seconds.observe(clock_seconds() - started)
        self.found += 1
        self.messages += result.count
        self.total_bytes += <int64_t> result.total_bytes
        return result

    cdef void _elsewhere(
        self, GetMessageResult result, int64_t at, int64_t low, int64_t high
    ) noexcept:
        result.next_begin_offset = result.max_offset
        if high == 0:
            result.status = _no_message
        elif at < low:
            result.status, result.next_begin_offset = _too_small, result.min_offset
        else:
            result.status = _overflow_one if at == high else _overflow_badly

    cdef bint _sweep(
        self, GetMessageResult result, const uint8_t *unit, Py_ssize_t count, Py_ssize_t stride,
        int64_t first, int64_t max_bytes,
    ) except -1:
        """Fill ``result`` with the records of the units; False: not plain, nothing was filled."""
        cdef Found found[MAX_AT_ONCE]
        cdef Part part
        cdef const uint8_t *record
        cdef list files = []
        cdef int64_t phy, before = 0, total = 0
        cdef int32_t size
        cdef Py_ssize_t number, taken = 0
        count = min(count, self.max_count)
        if not 1 <= count <= MAX_AT_ONCE:
            return False
        phy = load64(unit)
        if phy < 0 or self.log.end() - phy > self.in_memory:
            return False
        if not self.log.open(phy, &part, files):
            return False
        for number in range(count):  # records are far apart: prefetch them together
            phy = load64(unit + number * stride)
            if part.start <= phy < part.end:
                fetch_ahead(part.data + (phy - part.start))
                fetch_ahead(part.data + (phy - part.start) + AT_BORN)
                if number == count - 1:  # the last byte, which `ends_whole` reads
                    size = load32(unit + number * stride + AT_SIZE_OF_UNIT)
                    fetch_ahead(part.data + (phy - part.start) + max(size, 1) - 1)
        max_bytes = min(max_bytes, self.max_bytes)
        for number in range(count):
            phy, size = load64(unit), load32(unit + AT_SIZE_OF_UNIT)
            unit += stride
            if phy < before:  # units of a queue are ascending: see `ends_whole`
                return False
            before = phy
            if not part.start <= phy < part.end:
                if taken and not ends_whole(&found[taken - 1]):
                    return False
                if not self.log.open(phy, &part, files):
                    return False
            if size < MIN_RECORD or size > part.end - phy:
                return False
            if total + size > max_bytes and taken:
                break
            record = part.data + (phy - part.start)
            if not _is_there(record, phy, size):
                return False
            total += size
            found[taken].data, found[taken].size = record, size
            found[taken].file = <int32_t> (len(files) - 1)
            taken += 1
        if not ends_whole(&found[taken - 1]):
            return False
        result._take(files, found, taken, first)
        result.next_begin_offset, result.total_bytes = first + taken, total
        result.status = _status_found
        return True


cdef class Pulls:
    """The entry point of pulls: plain pulls run in compiled code, all others in Python."""

    cdef public object _fast, _queues

    def get(self, topic, queue_id, offset, max_msgs, tags, max_total_bytes=MAX_BYTES):
        """Pull at most ``max_msgs`` messages, see ``MessageStore.get_message``."""
        fast = self._fast
        if tags is None and isinstance(fast, FastPull):
            reads = self._queues.fast_reads
            if reads is not None:
                found = (<FastPull> fast).named(
                    reads, topic, queue_id, offset, max_msgs, max_total_bytes
                )
                if found is not None:
                    return found
        return self.get_otherwise(topic, queue_id, offset, max_msgs, tags, max_total_bytes)


cdef inline bint ends_whole(const Found *last) noexcept nogil:
    """Return whether a record that was read is valid, and all before it in its file."""
    return not log_faults_seen() and (last.data[last.size - 1] != 0 or _ends_in_zero(last))


cdef bint _ends_in_zero(const Found *last) noexcept nogil:
    """Return the result of `ends_whole` for a record whose last byte is zero."""
    cdef Places places
    if parse_record(last.data, last.size, &places) and ends_in_file(last.data, &places):
        return True
    return is_of_whole_map(last.data)


cdef inline bint _is_there(const uint8_t *record, int64_t phy, int32_t size) noexcept nogil:
    """Return whether the record that fills ``size`` bytes is a message with that phy offset."""
    return (
        load32(record) == size and load32(record + AT_MAGIC) == MAGIC_V1
        and load64(record + AT_PHY_OFFSET) == phy
        and not load32(record + AT_SYS_FLAG) & PASSED_OVER
    )
