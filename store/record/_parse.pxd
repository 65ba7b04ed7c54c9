# Records that were found, and the positions of their parts. Inline: called per message of a pull.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from cqstore.store.core._bytes cimport load16, load32
from cqstore.store.core._layout cimport (
    AT_BODY_SIZE_OF_TAIL, AT_MAGIC, AT_SYS_FLAG, BORN_V6, HEAD_BYTES, HOST_V4, HOST_V6, MAGIC_V1,
    MAGIC_V2, MIN_RECORD, STAMP_BYTES, STORE_V6, TAIL_BYTES,
)


cdef struct Found:
    # A record in one of the buffers that are held.
    const uint8_t *data
    int32_t size
    int32_t file  # index of the buffer


cdef struct Places:
    # The positions of the parts of a record, in bytes from its start; all within `size`.
    int32_t size, stored, body, body_size, topic, topic_end, properties


cdef inline bint parse_record(const uint8_t *data, int64_t size, Places *places) noexcept nogil:
    """Find the parts of the record that fills ``size`` bytes; return whether it is valid."""
    cdef int32_t flag, magic, body_size
    cdef int64_t at
    if size < MIN_RECORD or load32(data) != size:
        return False
    magic = load32(data + AT_MAGIC)
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        return False
    flag = load32(data + AT_SYS_FLAG)
    at = HEAD_BYTES + (HOST_V6 if flag & BORN_V6 else HOST_V4)
    places.size, places.stored = <int32_t> size, <int32_t> at
    at += STAMP_BYTES + (HOST_V6 if flag & STORE_V6 else HOST_V4) + TAIL_BYTES
    if at > size:
        return False
    body_size = load32(data + at - TAIL_BYTES + AT_BODY_SIZE_OF_TAIL)
    places.body, places.body_size = <int32_t> at, body_size
    at += body_size
    if body_size < 0 or at + (2 if magic == MAGIC_V2 else 1) > size:
        return False
    if magic == MAGIC_V2:
        places.topic = <int32_t> at + 2
        at += 2 + load16(data + at)
    else:
        places.topic = <int32_t> at + 1
        at += 1 + <int8_t> data[at]
    places.topic_end, places.properties = <int32_t> at, <int32_t> at + 2
    if at < places.topic or at + 2 > size:
        return False
    return load16(data + at) >= 0 and at + 2 + load16(data + at) == size


cdef inline bint ends_in_file(const uint8_t *data, const Places *places) noexcept nogil:
    """Return whether the record is certainly not truncated: a truncated file reads as zeros.

    False: the record may be valid all the same, because a valid record may end in a zero.
    """
    return data[places.size - 1] != 0 or (
        places.properties == places.size and data[places.topic_end - 1] != 0
    )
