# Searching the units of a queue by time. Part of `_native.pyx`.

cdef enum:
    NEAR_UNITS = 24


cdef int64_t _search(P units, char *key, size_t length, int64_t low, int64_t high,
                     int64_t timestamp, bint upper, int64_t min_phy, int64_t max_phy,
                     char **error) noexcept nogil:
    """Return the first place in [low, high) that lies behind ``timestamp``; high: none does.

    ``upper``: behind it and all that were stored then. ``key``: the prefix, with room for a place.
    """
    cdef int64_t times[NEAR_UNITS]
    cdef int64_t middle, at, first = 0, read = 0
    while low < high and error[0] == NULL:
        middle = low + (high - low) // 2
        if not first <= middle < first + read:
            first, read = middle, 1
            if high - low <= NEAR_UNITS:  # steps are cheaper than seeks
                first, read = low, high - low
            _read_times(units, key, length, first, read, min_phy, max_phy, times, error)
        at = times[middle - first]
        if at < timestamp or (upper and at == timestamp):
            low = middle + 1
        else:
            high = middle
    return low


cdef void _read_times(P units, char *key, size_t length, int64_t first, int64_t count,
                      int64_t min_phy, int64_t max_phy, int64_t *times, char **error) noexcept nogil:
    """Set the store times of ``count`` units from ``first`` on, -1 for those that count as none."""
    cdef const char *found
    cdef const char *value
    cdef size_t size = 0
    cdef int64_t at, place, phy
    for at in range(count):
        times[at] = -1
    store_be64(key + length, first)
    C.iter_seek(units, key, length + PLACE_BYTES)
    while C.iter_valid(units):
        found = C.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            return
        if size == length + PLACE_BYTES:
            place = load_be64(found + length)
            if place < first or place - first >= count:
                return
            value = C.iter_value(units, &size)
            if size >= <size_t>UNIT_BYTES:
                phy = load_be64(value)
                if min_phy <= phy < max_phy:
                    times[place - first] = load_be64(value + UNIT_BYTES - PLACE_BYTES)
            if place - first == count - 1:
                return
        C.iter_next(units)
    C.iter_get_error(units, error)
