# Walking over the units of a queue. Part of `_native.pyx`.

cdef enum Stop:
    FULL = 0
    NO_MORE = 1
    HOLE = 2
    TOO_SHORT = 3


cdef Py_ssize_t _begin_key(char *key, bytes prefix) except -1:
    """Put a queue's prefix into ``key``, with room for a place behind it; return its length."""
    cdef Py_ssize_t length = len(prefix)
    if length > MAX_PREFIX:
        raise ValueError("the prefix is too long")
    memcpy(key, <const char *>prefix, length)
    return length


cdef int64_t _take_units(P units, const char *key, size_t length, int64_t queue_offset,
                         int64_t count, uint8_t *target, int *stop, int64_t *there) noexcept nogil:
    """Copy consecutive units from ``key`` on, which is that of ``queue_offset``; return how many.

    ``stop`` says why no more, see ``Database.scan_into``; ``there``: the offset last looked at.
    """
    cdef const char *found
    cdef const char *value
    cdef size_t size = 0
    cdef int64_t taken = 0
    stop[0], there[0] = FULL, queue_offset
    C.iter_seek(units, key, length + PLACE_BYTES)
    while taken < count:
        if not C.iter_valid(units):
            stop[0] = NO_MORE
            break
        found = C.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            stop[0] = NO_MORE
            break
        if size == length + PLACE_BYTES:
            there[0] = load_be64(found + length)
            if there[0] != queue_offset + taken:
                stop[0] = HOLE
                break
            value = C.iter_value(units, &size)
            if size < <size_t>UNIT_BYTES:
                stop[0] = TOO_SHORT
                break
            memcpy(target + taken * UNIT_BYTES, value, UNIT_BYTES)
            taken += 1
        if taken < count:
            C.iter_next(units)
    return taken


cdef bint _find_unit(P units, const char *key, size_t length, bint forward) noexcept nogil:
    """Go to the unit at ``key`` or next to it; return whether the queue has one on that side."""
    cdef const char *found
    cdef size_t size = 0
    if forward:
        C.iter_seek(units, key, length + PLACE_BYTES)
    else:
        C.iter_seek_for_prev(units, key, length + PLACE_BYTES)
    while C.iter_valid(units):
        found = C.iter_key(units, &size)
        if size < length or memcmp(found, key, length) != 0:
            return False
        if size == length + PLACE_BYTES:
            return True
        if forward:
            C.iter_next(units)
        else:
            C.iter_prev(units)
    return False


cdef void _add_units(
    P writes, P family, const char *base, const int64_t[::1] starts,
    const int64_t[::1] prefix_index, const int64_t[::1] queue_offset,
    const uint8_t[:, ::1] units, Py_ssize_t count,
) noexcept nogil:
    """Add units to a write; see ``Database.write``."""
    cdef char key[MAX_PREFIX + PLACE_BYTES]
    cdef size_t length = 0
    cdef int64_t prefix, current = -1
    cdef Py_ssize_t at
    for at in range(count):
        prefix = prefix_index[at]
        if prefix != current:
            current = prefix
            length = starts[prefix + 1] - starts[prefix]
            memcpy(key, base + starts[prefix], length)
        store_be64(key + length, queue_offset[at])
        C.writebatch_put_cf(writes, family, key, length + PLACE_BYTES,
                            <const char *>&units[at, 0], UNIT_BYTES)
