# A write batch in RocksDB's own form, built in memory of ours. Part of `_native.pyx`.
#
# The form is that of its log (`db/write_batch.cc`): sequence number, count, then a record a change:
# a tag, the family's number unless it is the first, key and value with their lengths. How a record
# of a family begins RocksDB is asked. It takes the whole as a copy, and checks the count.

cdef enum:
    BATCH_HEAD = 12  # bytes before the records: sequence number and count
    COUNT_AT = 8
    LONGEST_HEAD = 16


cdef struct RecordHead:
    # How RocksDB begins a record of a family: a tag, and the family's number unless it is the first.
    char data[LONGEST_HEAD]
    size_t length


cdef int _make_room(Database database, size_t size) except -1:
    """Let a database have memory for a write.

    It is kept for the next one: new memory of this size takes a fifth of the time of a whole write,
    for the system clears it page by page.
    """
    if size > database.built_room:
        _keep_at_most(database, 0)
        database.built = <char *> PyMem_RawMalloc(size)
        if database.built == NULL:
            raise MemoryError
        database.built_room = size
    return 0


cdef void _keep_at_most(Database database, size_t room) noexcept:
    if database.built_room > room:
        PyMem_RawFree(database.built)
        database.built, database.built_room = NULL, 0


cdef size_t _length_bytes(size_t length) noexcept nogil:
    """Return the bytes of a length in RocksDB's form: seven bits a byte, the lowest first."""
    cdef size_t count = 1
    while length >= 0x80:
        length >>= 7
        count += 1
    return count


cdef size_t _put_length(char *out, size_t length) noexcept nogil:
    cdef size_t at = 0
    while length >= 0x80:
        out[at] = <char> (length | 0x80)
        length >>= 7
        at += 1
    out[at] = <char> length
    return at + 1


cdef size_t _record_bytes(const RecordHead *head, size_t key, size_t value) noexcept nogil:
    return head.length + _length_bytes(key) + key + _length_bytes(value) + value


cdef size_t _put_key(
    char *out, const RecordHead *head, const char *key, size_t length
) noexcept nogil:
    cdef size_t at = head.length
    memcpy(out, head.data, at)
    at += _put_length(out + at, length)
    memcpy(out + at, key, length)
    return at + length


cdef size_t _put_value(char *out, const char *value, size_t length) noexcept nogil:
    cdef size_t at = _put_length(out, length)
    memcpy(out + at, value, length)
    return at + length


cdef RecordHead _head_of(P batch, P family) noexcept:
    """Have RocksDB begin a record of a family; without a length it does so in an unknown form."""
    cdef RecordHead head
    cdef size_t size = 0
    cdef const char *data
    head.length = 0
    C.writebatch_clear(batch)
    C.writebatch_put_cf(batch, family, "k", 1, "v", 1)
    data = C.writebatch_data(batch, &size)
    if BATCH_HEAD + 4 < size <= BATCH_HEAD + 4 + LONGEST_HEAD:
        head.length = size - BATCH_HEAD - 4
        memcpy(head.data, data + BATCH_HEAD, head.length)
    C.writebatch_clear(batch)
    return head


def batch_bytes(Database database not None, int family, list units, list puts):
    """Return what RocksDB itself makes of a write of ``units`` and, in ``family``, of ``puts``."""
    cdef size_t size = 0
    cdef const char *data
    cdef bytes key, value
    database._check_open()
    C.writebatch_clear(database.writes)
    for number, rows in ((0, units), (family, puts)):
        for key, value in rows:
            C.writebatch_put_cf(database.writes, database.families[<int> number], key, len(key), value, len(value))
    data = C.writebatch_data(database.writes, &size)
    try:
        return data[:size]
    finally:
        C.writebatch_clear(database.writes)
