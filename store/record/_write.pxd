# Writing records to the log. A module that writes records calls `crc_prepare` when it is imported.

from libc.stdint cimport int64_t, uint32_t

from cqstore.store.core._crc32 cimport crc_on
from cqstore.store.core._layout cimport AT_CRC, BLANK_BYTES, CRC_DIGITS, CRC_PROPERTY_BYTES, HOST_V4, HOST_V6
from cqstore.store.core._record cimport in_this_order, put16, put32, put64, put_bytes
from cqstore.store.record._scratch cimport Encoded


cdef inline char *put_host(char *at, const char *wire, Py_ssize_t size) noexcept nogil:
    if size == HOST_V4:  # two copies of a length that is known at compile time
        return put_bytes(at, wire, HOST_V4)
    return put_bytes(at, wire, HOST_V6)


cdef inline void write_record(
    const Encoded *entry, const char *properties, char *start, int64_t offset, int64_t phy_offset,
    int64_t now, bint is_sealed,
) noexcept nogil:
    """Write a record to ``start``. Its size and magic code are written last and make it valid.

    ``is_sealed``: the last property, which is present already, gets the record's checksum.
    """
    cdef char *out = put32(start + AT_CRC, entry.crc & 0x7FFFFFFF)
    out = put32(put32(out, <uint32_t> entry.queue_id), <uint32_t> entry.flag)
    out = put64(put64(out, offset), phy_offset)
    out = put64(put32(out, <uint32_t> entry.sys_flag), entry.born)
    out = put64(put_host(out, entry.born_host, entry.born_size), now)
    out = put_host(out, entry.store_host, entry.store_size)
    out = put64(put32(out, <uint32_t> entry.reconsumed), entry.prepared)
    out = put_bytes(put32(out, <uint32_t> entry.body_size), entry.body, entry.body_size)
    out = put_bytes(out, entry.topic, entry.topic_size)
    out = put16(out, <unsigned short> entry.properties_size)
    put_bytes(out, properties + entry.properties_at, entry.properties_size)
    if is_sealed:
        write_checksum(entry, start)
    in_this_order()
    put32(put32(start, <uint32_t> entry.size), <uint32_t> entry.magic)


cdef inline void write_checksum(const Encoded *entry, char *start) noexcept nogil:
    """Write the checksum of a record, without its last property, into that last property.

    Its digits are written least significant first, as RocketMQ writes them.
    """
    cdef char first[BLANK_BYTES]
    cdef Py_ssize_t covered = entry.size - CRC_PROPERTY_BYTES, at
    put32(put32(first, <uint32_t> entry.size), <uint32_t> entry.magic)
    cdef uint32_t crc = crc_on(0, first, BLANK_BYTES)
    crc = crc_on(crc, start + BLANK_BYTES, covered - BLANK_BYTES) & 0x7FFFFFFF
    for at in range(entry.size - 1 - CRC_DIGITS, entry.size - 1):
        start[at] = <char> (c"0" + crc % 10)
        crc //= 10
