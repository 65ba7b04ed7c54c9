/* Numbers of Python, bytes of a record, and tuples that are filled item by item. */

#include <Python.h>
#include <stdint.h>

/* A tuple of a class made from it, as a named tuple is, whose items are set next. The collector of
 * garbage does not know it before PyObject_GC_Track: what it calls cannot meet it half made. */
static inline PyObject *blank_tuple(PyObject *type, Py_ssize_t size) {
    PyObject *made = ((PyTypeObject *)type)->tp_alloc((PyTypeObject *)type, size);
    if (made == NULL) return NULL;
    PyObject_GC_UnTrack(made);
#if PY_VERSION_HEX >= 0x030E0000
    ((PyTupleObject *)made)->ob_hash = -1; /* a tuple keeps its hash there, and has none yet */
#endif
    return made;
}

/* Read a whole number of [low, high]; 0: it is none, no exception is set. */
static inline int whole_number(PyObject *object, int64_t low, int64_t high, int64_t *found) {
    int overflow = 0;
    if (object == NULL || !PyLong_CheckExact(object)) return 0;
    *found = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow && *found >= low && *found <= high;
}

static inline char *put_bytes(char *at, const char *data, size_t size) {
    if (size) __builtin_memcpy(at, data, size); /* of nothing there may be no data */
    return at + size;
}

static inline int is_ascii(const char *data, size_t size) {
    unsigned char seen = 0;
    for (size_t at = 0; at < size; at++) seen |= (unsigned char)data[at];
    return seen < 0x80;
}

/* A reader that sees a write made after this also sees every write made before it. */
static inline void in_this_order(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
