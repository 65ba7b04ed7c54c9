# Columns, for compiled code that adds to them and reads them.

cdef enum:
    NUMBERED = 4  # bytes of a row: a 32-bit number
    PLACED = 8  # bytes of a row: a 64-bit number


cdef class Block:
    cdef char *data
    cdef Py_ssize_t room


cdef class Column:
    cdef Block block  # a view of the column keeps it alive too
    cdef readonly Py_ssize_t item_bytes
    cdef Py_ssize_t used

    cdef char *room(self, Py_ssize_t more) except NULL
    cdef int add(self, bytes rows) except -1
    cdef int _grow(self, Py_ssize_t used, Py_ssize_t wanted) except -1


cdef inline char *room_in(Column column, Py_ssize_t more) except NULL:
    """Like ``Column.room``, without a call if there is enough space."""
    cdef Py_ssize_t at = column.used * column.item_bytes
    if at + more * column.item_bytes > column.block.room:
        return column.room(more)
    return column.block.data + at
