# cython: language_level=3, boundscheck=False, wraparound=False
"""Options of a database, set by the names of their setters, and the compaction filter.

The filter is called in RocksDB's threads without the GIL. Its state outlives the database.
"""

cimport cython
from libc.stdint cimport INT64_MIN, int64_t, uint64_t
from libc.stdlib cimport calloc, free

from cqstore.cq_rocksdb.engine._capi cimport Handle, check, function_of, is_loaded, rocksdb
from cqstore.cq_rocksdb.engine._keys cimport UNIT_BYTES
from cqstore.store.core._bytes cimport load64

cdef extern from *:
    """
    static int64_t filter_load(const int64_t *field) {
        return __atomic_load_n(field, __ATOMIC_RELAXED);
    }
    static void filter_store(int64_t *field, int64_t value) {
        __atomic_store_n(field, value, __ATOMIC_RELAXED);
    }
    static unsigned char drop_expired(void *opaque, int level, const char *key, size_t key_length,
                                      const char *value, size_t value_length, char **new_value,
                                      size_t *new_length, unsigned char *changed) {
        FilterState *state = opaque;
        (void)level; (void)key; (void)key_length; (void)new_value; (void)new_length;
        *changed = 0;
        __atomic_fetch_add(&state->seen, 1, __ATOMIC_RELAXED);
        if (value_length < UNIT_BYTES || load64(value) >= filter_load(&state->minimum)) return 0;
        __atomic_fetch_add(&state->dropped, 1, __ATOMIC_RELAXED);
        return 1;
    }
    static void keep_state(void *opaque) { (void)opaque; }
    static const char *filter_name(void *opaque) { (void)opaque; return "cqstore.expired"; }
    """
    int64_t filter_load(const int64_t *) nogil
    void filter_store(int64_t *, int64_t) nogil
    unsigned char drop_expired(void *, int, const char *, size_t, const char *, size_t, char **,
                               size_t *, unsigned char *) noexcept nogil
    void keep_state(void *) noexcept nogil
    const char *filter_name(void *) noexcept nogil


ctypedef void (*SetOn)(Handle) noexcept nogil
ctypedef void (*SetInt)(Handle, int) noexcept nogil
ctypedef void (*SetSize)(Handle, uint64_t) noexcept nogil
ctypedef void (*SetByte)(Handle, unsigned char) noexcept nogil
ctypedef void (*SetDouble)(Handle, double) noexcept nogil
ctypedef void (*SetText)(Handle, const char *) noexcept nogil
ctypedef void (*SetHandle)(Handle, Handle) noexcept nogil
ctypedef void (*SetParsed)(Handle, const char *, Handle, char **) noexcept nogil


@cython.no_gc_clear  # freed before what it refers to
cdef class Options:
    """One options object, freed with its last user. Setters are called by name.

    ``set`` takes the C type of the setter's argument. A wrong type is undefined behaviour, so types
    and names are in one table, in ``native_options``.
    """

    def __cinit__(self, str kind, *args):
        self.used = []
        self.lacking = []
        if not is_loaded():
            raise RuntimeError("no RocksDB library is loaded")
        if kind == "options":
            self.handle, self.destroy = rocksdb.options_create(), rocksdb.options_destroy
        elif kind == "block_based_options":
            self.handle = rocksdb.block_based_options_create()
            self.destroy = rocksdb.block_based_options_destroy
        elif kind == "universal_compaction_options":
            self.handle = rocksdb.universal_compaction_options_create()
            self.destroy = rocksdb.universal_compaction_options_destroy
        elif kind == "cache":
            self.handle, self.destroy = rocksdb.cache_create_lru(args[0]), rocksdb.cache_destroy
        elif kind == "ratelimiter":
            self.handle = rocksdb.ratelimiter_create(args[0], 100_000, 10)
            self.destroy = rocksdb.ratelimiter_destroy
        elif kind == "bloom":  # owned by the table options in which it is set
            self.handle, self.destroy = rocksdb.filterpolicy_create_bloom_full(args[0]), NULL
        else:
            raise ValueError(kind)

    def __dealloc__(self):
        if self.handle != NULL and self.destroy != NULL:
            self.destroy(self.handle)

    def set(self, str name, str kind, value):
        """Call ``rocksdb_<name>``; if the library lacks it, add it to ``lacking``."""
        cdef void *function = function_of(name)
        cdef char *error = NULL
        if function == NULL:
            self.lacking.append("rocksdb_" + name)
        elif kind == "on":
            (<SetOn>function)(self.handle)
        elif kind == "int":
            (<SetInt>function)(self.handle, value)
        elif kind == "size":
            (<SetSize>function)(self.handle, value)
        elif kind == "byte":
            (<SetByte>function)(self.handle, value)
        elif kind == "double":
            (<SetDouble>function)(self.handle, value)
        elif kind == "text":
            (<SetText>function)(self.handle, value)
        elif kind == "handle":
            (<SetHandle>function)(self.handle, (<Options>value).handle)
            self.used.append(value)
        elif kind == "parsed":  # for an option that has no setter: "name=value"
            (<SetParsed>function)(self.handle, value, self.handle, &error)
            check(error)
        else:
            raise ValueError(kind)


cdef class CompactionFilter:
    """Drops values of at least 28 bytes whose first eight are a number below ``minimum``.

    RocksDB's threads call it without a lock and without the GIL. It must outlive its database.
    """

    def __cinit__(self):
        self.state = <FilterState *>calloc(1, sizeof(FilterState))
        if self.state == NULL:
            raise MemoryError
        self.state.minimum = INT64_MIN
        self.handle = rocksdb.compactionfilter_create(
            self.state, keep_state, drop_expired, filter_name
        )

    def __dealloc__(self):
        if self.handle != NULL:
            rocksdb.compactionfilter_destroy(self.handle)
        free(self.state)

    def raise_minimum(self, int64_t minimum):
        """Make compactions drop units below ``minimum``; a lower value than before is ignored."""
        if minimum > filter_load(&self.state.minimum):
            filter_store(&self.state.minimum, minimum)

    @property
    def dropped(self):
        """Number of entries that compactions dropped."""
        return filter_load(&self.state.dropped)

    @property
    def seen(self):
        """Number of entries that compactions checked."""
        return filter_load(&self.state.seen)
