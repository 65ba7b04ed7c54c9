# cython: language_level=3, boundscheck=False, wraparound=False
"""Estimate of how many messages of a range match a filter (a consumer's lag).

``FastFilter`` reads units as they are in a queue; ``estimate`` takes any units, also of a batch
queue, and any filter. Both count by one rule, ``Sample``.

Source: RocketMQ ``ConsumeQueue.estimateMessageCount``, ``BatchConsumeQueue.estimateMessageCount``.
"""

from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t

from cqstore.store.core._arguments cimport is_small
from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, AT_TAGS_CODE_OF_UNIT, UNIT_OF_FILES

cdef enum:
    MAX_AT_ONCE = 1024  # units that are read with one call
    NO_SIZE = 0x7fffffff  # size of the filler before the first unit of a file


cdef struct Sample:
    # Units that were scanned, and matched; messages of the range that they have, and that matched.
    int64_t scanned, matched, passed, found
    int64_t max_scan, max_matches


cdef inline bint is_full(const Sample *sample) noexcept nogil:
    return sample.scanned >= sample.max_scan or sample.matched > sample.max_matches


cdef inline void count(Sample *sample, int64_t messages, bint matches) noexcept nogil:
    sample.scanned += 1
    sample.passed += messages
    if matches:
        sample.matched += 1
        sample.found += messages


cdef object of_range(const Sample *sample, int64_t messages):
    """Apply the share of matches to all messages of the range."""
    return <object> sample.found * messages // max(sample.passed, <int64_t> 1)


def estimate(
    units, int64_t start, int64_t end, matches, int64_t max_scan, int64_t max_matches
):
    """Count the messages of [start, end) in ``units`` that satisfy ``matches``.

    A unit of a batch queue counts the messages that it has in the range. As in RocketMQ the limits
    count units; when one is reached, the share of matches so far is applied to the whole range.
    """
    cdef Sample sample = Sample(0, 0, 0, 0, max_scan, max_matches)
    cdef int64_t first, after
    for unit in units:
        first = unit.queue_offset
        if first >= end:
            break
        if is_full(&sample):
            return of_range(&sample, end - start)
        after = first + <int64_t> unit.batch_num
        count(
            &sample, max(min(after, end) - max(first, start), <int64_t> 0), matches(unit.tags_code)
        )
    return sample.found


cdef class FastFilter:
    """A filter by tags, as tests of a unit's tags code: one of a few codes, or any code."""

    def __init__(self, codes):
        """``codes``: the codes to match; ``None`` matches everything.

        Raises:
            ValueError: there are too many codes.
        """
        cdef tuple given = tuple(codes or ())
        cdef Py_ssize_t number
        if len(given) > MAX_CODES:
            raise ValueError("too many codes")
        for number in range(len(given)):
            self.codes[number] = given[number]
        self.everything, self.count = codes is None, len(given)

    cdef bint matches(self, int64_t tags_code) noexcept nogil:
        cdef Py_ssize_t number
        if self.everything:
            return True
        for number in range(self.count):
            if self.codes[number] == <int32_t> (tags_code & <int64_t> 0xffffffff):  # Java's cast
                return True
        return False

    def estimate(self, queue, start, end, int64_t per_file, int64_t max_scan, int64_t max_matches):
        """Estimate as ``ConsumeQueue.estimate_message_count``; ``None``: the slow path is needed.

        Plain units exist and contain their tags codes. ``per_file``: units per queue file; no read
        crosses its end.
        """
        cdef int64_t at, stop = 0, total = 0, low, high, code
        cdef Py_ssize_t stride, number, room
        cdef Sample sample = Sample(0, 0, 0, 0, max_scan, max_matches)
        cdef const uint8_t *unit
        cdef BufferRef units
        if not (is_small(start) and is_small(end)) or max_scan < 1 or per_file < 1:
            return None
        at = start
        while not stop or at < stop:
            found_units = queue.fast_units(at, min(<int64_t> MAX_AT_ONCE, per_file - at % per_file))
            if found_units is None:
                return None
            low, high, data, stride = found_units
            if not stop:
                if at < low:  # the caller would limit the range
                    return None
                stop = min(<int64_t> end, high)
                total = stop - at
                if total <= 0:
                    return 0
            units = BufferRef(data)
            room = units.buffer.len // stride if stride >= UNIT_OF_FILES else 0
            if room < 1:
                return None
            unit = <const uint8_t *> units.buffer.buf
            for number in range(min(<int64_t> room, stop - at)):
                code = load64(unit + AT_TAGS_CODE_OF_UNIT)
                if not 0 < load32(unit + AT_SIZE_OF_UNIT) < NO_SIZE or load64(unit) < 0:
                    return None
                if code < INT32_MIN:  # may be the address of an extension unit
                    return None
                if is_full(&sample):
                    return of_range(&sample, total)
                count(&sample, 1, self.matches(code))
                unit += stride
            at += min(<int64_t> room, stop - at)
        return sample.found
