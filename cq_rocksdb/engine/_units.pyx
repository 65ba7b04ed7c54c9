# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads a queue's units through a RocksDB iterator: one by one, and by time.

No function here needs the GIL. ``key`` begins with the queue's prefix, of ``length`` bytes, and has
space for a queue offset after it.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from cqstore.cq_rocksdb.engine._capi cimport Handle, rocksdb
from cqstore.cq_rocksdb.engine._keys cimport PLACE_BYTES, UNIT_BYTES
from cqstore.store.core._bytes cimport load64, store64
from cqstore.store.queue._time_search cimport (
    TimeSearch, begin_search, compare_unit, next_unit, offset_found,
)

cdef enum:
    NEAR_UNITS = 24


cdef int64_t copy_units(
    Handle units, const char *key, size_t length, int64_t queue_offset, int64_t count,
    uint8_t *target, int *stop, int64_t *there,
) noexcept nogil:
    """Copy consecutive units from ``key`` on, the key of ``queue_offset``; return their number.

    ``stop`` is set as in ``Database.scan_into``; ``there`` is set to the last offset read.
    """
    cdef const char *found
    cdef const char *value
    cdef size_t size = 0
    cdef int64_t taken = 0
    stop[0], there[0] = FULL, queue_offset
    rocksdb.iter_seek(units, key, length + PLACE_BYTES)
    while taken < count:
        if not rocksdb.iter_valid(units):
            stop[0] = NO_MORE
            break
        found = rocksdb.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            stop[0] = NO_MORE
            break
        if size == length + PLACE_BYTES:
            there[0] = load64(found + length)
            if there[0] != queue_offset + taken:
                stop[0] = HOLE
                break
            value = rocksdb.iter_value(units, &size)
            if size < <size_t>UNIT_BYTES:
                stop[0] = TOO_SHORT
                break
            memcpy(target + taken * UNIT_BYTES, value, UNIT_BYTES)
            taken += 1
        if taken < count:
            rocksdb.iter_next(units)
    return taken


cdef bint find_unit(Handle units, const char *key, size_t length, bint forward) noexcept nogil:
    """Seek the unit at or next to ``key``; return whether the queue has one in that direction."""
    cdef const char *found
    cdef size_t size = 0
    if forward:
        rocksdb.iter_seek(units, key, length + PLACE_BYTES)
    else:
        rocksdb.iter_seek_for_prev(units, key, length + PLACE_BYTES)
    while rocksdb.iter_valid(units):
        found = rocksdb.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            return False
        if size == length + PLACE_BYTES:
            return True
        if forward:
            rocksdb.iter_next(units)
        else:
            rocksdb.iter_prev(units)
    return False


cdef int64_t search_units(
    Handle units, char *key, size_t length, int64_t low, int64_t high, int64_t timestamp,
    bint upper, int64_t min_phy, int64_t max_phy, char **error,
) noexcept nogil:
    """Return the offset in [low, high) for ``timestamp``."""
    cdef int64_t times[NEAR_UNITS]
    cdef int64_t first = 0, read = 0
    cdef TimeSearch search
    begin_search(&search, low, high, timestamp, upper)
    while error[0] == NULL and next_unit(&search):
        if not first <= search.middle < first + read:
            first, read = search.middle, 1
            if search.high - search.low <= NEAR_UNITS:  # steps are cheaper than seeks
                first, read = search.low, search.high - search.low
            _read_times(units, key, length, first, read, min_phy, max_phy, times, error)
        compare_unit(&search, times[search.middle - first])
    return offset_found(&search)


cdef void _read_times(
    Handle units, char *key, size_t length, int64_t first, int64_t count, int64_t min_phy,
    int64_t max_phy, int64_t *times, char **error,
) noexcept nogil:
    """Set the store times of ``count`` units from ``first`` on; -1: missing or not in the log."""
    cdef const char *found
    cdef const char *value
    cdef size_t size = 0
    cdef int64_t at, place, phy
    for at in range(count):
        times[at] = -1
    store64(key + length, first)
    rocksdb.iter_seek(units, key, length + PLACE_BYTES)
    while rocksdb.iter_valid(units):
        found = rocksdb.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            return
        if size == length + PLACE_BYTES:
            place = load64(found + length)
            if place < first or place - first >= count:
                return
            value = rocksdb.iter_value(units, &size)
            if size >= <size_t>UNIT_BYTES:
                phy = load64(value)
                if min_phy <= phy < max_phy:
                    times[place - first] = load64(value + UNIT_BYTES - PLACE_BYTES)
            if place - first == count - 1:
                return
        rocksdb.iter_next(units)
    rocksdb.iter_get_error(units, error)
