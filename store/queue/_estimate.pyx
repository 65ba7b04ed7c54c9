# cython: language_level=3, boundscheck=False, wraparound=False
"""FastFilter: estimates of a consumer's lag.

Anything that is not plain is left to the slow path in Python, see ``cqstore.store.queue.estimate``.
"""

from libc.stdint cimport INT32_MIN, int32_t, int64_t, uint8_t

from cqstore.store.core._arguments cimport is_small
from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, AT_TAGS_CODE_OF_UNIT, UNIT_OF_FILES

cdef enum:
    MAX_AT_ONCE = 1024  # units that are read with one call
    NO_SIZE = 0x7fffffff  # size of the filler before the first unit of a file


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
        cdef int64_t at, stop = 0, total = 0, scanned = 0, found = 0, low, high, code
        cdef Py_ssize_t stride, number, count
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
            count = units.buffer.len // stride if stride >= UNIT_OF_FILES else 0
            if count < 1:
                return None
            unit = <const uint8_t *> units.buffer.buf
            for number in range(min(<int64_t> count, stop - at)):
                code = load64(unit + AT_TAGS_CODE_OF_UNIT)
                if not 0 < load32(unit + AT_SIZE_OF_UNIT) < NO_SIZE or load64(unit) < 0:
                    return None
                if code < INT32_MIN:  # may be the address of an extension unit
                    return None
                if scanned >= max_scan or found > max_matches:
                    return <object> found * total // scanned
                found += self.matches(code)
                scanned += 1
                unit += stride
            at += min(<int64_t> count, stop - at)
        return found
