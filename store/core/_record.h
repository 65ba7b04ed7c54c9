/* Numbers as Python has them and as a record has them. */

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

static inline char *put16(char *at, uint16_t value) {
    at[0] = (char)(value >> 8), at[1] = (char)value;
    return at + 2;
}

static inline char *put32(char *at, uint32_t value) {
    return put16(put16(at, (uint16_t)(value >> 16)), (uint16_t)value);
}

static inline char *put64(char *at, uint64_t value) {
    return put32(put32(at, (uint32_t)(value >> 32)), (uint32_t)value);
}

static inline int64_t get16(const char *at) {
    return (int64_t)((unsigned char)at[0] << 8 | (unsigned char)at[1]);
}

/* With its sign, as Java reads it. */
static inline int64_t get32(const char *at) { return (int32_t)(get16(at) << 16 | get16(at + 2)); }

static inline int64_t get64(const char *at) {
    return (int64_t)((uint64_t)get32(at) << 32 | (uint32_t)get32(at + 4));
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
