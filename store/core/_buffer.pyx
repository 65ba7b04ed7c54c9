# cython: language_level=3, boundscheck=False, wraparound=False
"""BufferRef: keeps the bytes of an object alive."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer


@cython.final
@cython.no_gc
@cython.freelist(16)
cdef class BufferRef:
    """The bytes of an object, which stays alive and in place while this reference exists."""

    def __cinit__(self, owner):
        PyObject_GetBuffer(owner, &self.buffer, PyBUF_SIMPLE)

    def __dealloc__(self):
        PyBuffer_Release(&self.buffer)

    cdef object slice(self, Py_ssize_t start, Py_ssize_t end):
        """Return a read-only view of a part; the view also keeps the object alive."""
        if self.view is None:
            self.view = memoryview(<object> self.buffer.obj).toreadonly()
        return self.view[start:end]
