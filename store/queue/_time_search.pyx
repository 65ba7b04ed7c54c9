# cython: language_level=3, boundscheck=False, wraparound=False
"""The binary search of a queue by store time, one rule for every backend and for Python."""

cimport cython
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t
from libc.string cimport memset

cdef int64_t _sampled = 0


def search_offset(int64_t min_offset, int64_t max_offset, timestamp, bint upper, timestamp_at):
    """Search as ``cqstore.store.queue.time_search.search_offset``."""
    cdef TimeSearch search
    if timestamp > INT64_MAX:
        return max(max_offset - 1, min_offset) if upper else max_offset
    if timestamp < INT64_MIN:
        return min_offset
    begin_search(&search, min_offset, max_offset, timestamp, upper)
    while next_unit(&search):
        compare_unit(&search, timestamp_at(search.middle))
    return offset_found(&search)


@cython.final
@cython.no_gc
cdef class SampledTimes:
    """Store times of some units of a queue, at most ``MAX_SAMPLES``, as searches have read them.

    Valid for one generation of the queue and one start of the log: as long as both are the same, no
    record of the queue changes.
    """

    def __cinit__(self):
        global _sampled
        _sampled += 1
        memset(self.times, 0xFF, sizeof(self.times))

    def __dealloc__(self):
        global _sampled
        _sampled -= 1


cdef SampledTimes times_for(
    SampledTimes known, const TimeSearch *search, int64_t generation, int64_t min_phy_offset
):
    """Return ``known`` if its times are valid and of the units that ``search`` compares first.

    Otherwise new ones, whose times are not known yet; ``None``: a short queue, or too many queues.
    """
    if (
        known is not None and known.generation == generation
        and known.min_phy_offset == min_phy_offset
        and known.first == search.first and known.shift == search.shift
    ):
        return known
    if search.high - search.low < MIN_SAMPLED or _sampled >= MAX_QUEUES:
        return None
    known = SampledTimes.__new__(SampledTimes)
    known.generation, known.min_phy_offset = generation, min_phy_offset
    known.first, known.shift = search.first, search.shift
    return known
