# The search of a queue by store time: its steps, and times that were read before.

cimport cython
from libc.stdint cimport int64_t

cdef enum:
    LEAST_SHIFT = 3
    MIN_SAMPLED = 16  # units of a queue whose times are kept
    MAX_SAMPLES = 512  # of one queue: 4 KB
    MAX_QUEUES = 8192  # of the process, whose times are kept


cdef struct TimeSearch:
    # Units below `low` are before the time, units from `high` on are after it.
    int64_t first, low, high, middle, timestamp
    int shift  # units whose offsets are multiples of 1 << shift are compared first
    bint upper


cdef inline void begin_search(
    TimeSearch *search, int64_t low, int64_t high, int64_t timestamp, bint upper
) noexcept nogil:
    search.first, search.low, search.high = low, low, high
    search.timestamp, search.upper, search.shift = timestamp, upper, LEAST_SHIFT
    while (high - low) >> search.shift >= MAX_SAMPLES - 1:
        search.shift += 1


cdef inline bint next_unit(TimeSearch *search) noexcept nogil:
    """Set ``middle`` to the unit to compare next; False: the search has ended.

    All searches of a queue, also while it grows, compare the same few units first.
    """
    cdef int64_t middle = search.low + ((search.high - search.low) >> 1)
    search.middle = middle >> search.shift << search.shift
    if search.middle < search.low:
        search.middle = middle
    return search.low < search.high


cdef inline void compare_unit(TimeSearch *search, int64_t stored) noexcept nogil:
    """Go on from ``middle``, whose record was stored at ``stored``."""
    if stored < search.timestamp or (search.upper and stored == search.timestamp):
        search.low = search.middle + 1
    else:
        search.high = search.middle


cdef inline int64_t offset_found(const TimeSearch *search) noexcept nogil:
    return max(search.low - 1, search.first) if search.upper else search.low


@cython.final
cdef class SampledTimes:
    cdef int64_t generation, min_phy_offset, first
    cdef int shift
    cdef int64_t times[MAX_SAMPLES]

    cdef inline int64_t *sample(self, int64_t offset) noexcept:
        """Return where the time of a unit is kept, -1 until it is set; NULL: it is not kept."""
        cdef int64_t at = offset >> self.shift
        return &self.times[at - (self.first >> self.shift)] if at << self.shift == offset else NULL


cdef SampledTimes times_for(
    SampledTimes known, const TimeSearch *search, int64_t generation, int64_t min_phy_offset
)
