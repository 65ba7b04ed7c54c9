# Buffers that are kept alive, for compiled code that reads them.

cimport cython


@cython.final
cdef class BufferRef:
    cdef Py_buffer buffer
    cdef object view

    cdef object slice(self, Py_ssize_t start, Py_ssize_t end)
