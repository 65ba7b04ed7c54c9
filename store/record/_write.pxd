# Writing records to the log. A module that writes records calls `crc_prepare` when it is imported.

from libc.stdint cimport int64_t, uint32_t

from cqstore.store.core._crc32 cimport crc_on
from cqstore.store.core._layout cimport AT_CRC, BLANK_BYTES, CRC_DIGITS, CRC_PROPERTY_BYTES, HOST_V4, HOST_V6
from cqstore.store.core._record cimport in_this_order, put16, put32, put64, put_bytes
from cqstore.store.record._scratch cimport Plain


cdef inline char *put_host(char *at, const char *wire, Py_ssize_t size) noexcept nogil:
    if size == HOST_V4:  # two copies of a length that is known at compile time
        return put_bytes(at, wire, HOST_V4)
    return put_bytes(at, wire, HOST_V6)


cdef inline void write_record(
    const Plain *plain, const char *properties, char *start, int64_t offset, int64_t phy_offset,
    int64_t now, bint is_sealed,
) noexcept nogil:
    """Write a record to ``start``. Its size and magic code are written last and make it valid.

    ``is_sealed``: the last property, which is present already, gets the record's checksum.
    """
    cdef char *out = put32(start + AT_CRC, plain.crc & 0x7FFFFFFF)
    out = put32(put32(out, <uint32_t> plain.queue_id), <uint32_t> plain.flag)
    out = put64(put64(out, offset), phy_offset)
    out = put64(put32(out, <uint32_t> plain.sys_flag), plain.born)
    out = put64(put_host(out, plain.born_host, plain.born_size), now)
    out = put_host(out, plain.store_host, plain.store_size)
    out = put64(put32(out, <uint32_t> plain.reconsumed), plain.prepared)
    out = put_bytes(put32(out, <uint32_t> plain.body_size), plain.body, plain.body_size)
    out = put_bytes(out, plain.topic, plain.topic_size)
    out = put16(out, <unsigned short> plain.properties_size)
    put_bytes(out, properties + plain.properties_at, plain.properties_size)
    if is_sealed:
        write_checksum(plain, start)
    in_this_order()
    put32(put32(start, <uint32_t> plain.size), <uint32_t> plain.magic)


cdef inline void write_checksum(const Plain *plain, char *start) noexcept nogil:
    """Write the checksum of a record, without its last property, into that last property.

    Its digits are written least significant first, as RocketMQ writes them.
    """
    cdef char first[BLANK_BYTES]
    cdef Py_ssize_t covered = plain.size - CRC_PROPERTY_BYTES, at
    put32(put32(first, <uint32_t> plain.size), <uint32_t> plain.magic)
    cdef uint32_t crc = crc_on(0, first, BLANK_BYTES)
    crc = crc_on(crc, start + BLANK_BYTES, covered - BLANK_BYTES) & 0x7FFFFFFF
    for at in range(plain.size - 1 - CRC_DIGITS, plain.size - 1):
        start[at] = <char> (c"0" + crc % 10)
        crc //= 10
