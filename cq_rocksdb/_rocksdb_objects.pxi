# What a database is opened with, and the tables beside it: options, the filter, the table writer.
# Part of `_native.pyx`.

ctypedef void (*SetOn)(P) noexcept nogil
ctypedef void (*SetInt)(P, int) noexcept nogil
ctypedef void (*SetSize)(P, uint64_t) noexcept nogil
ctypedef void (*SetByte)(P, unsigned char) noexcept nogil
ctypedef void (*SetDouble)(P, double) noexcept nogil
ctypedef void (*SetText)(P, const char *) noexcept nogil
ctypedef void (*SetHandle)(P, P) noexcept nogil


@cython.no_gc_clear  # freed before what it refers to
cdef class Options:
    """One object of options, freed with its last user. Setters are called by name.

    ``set`` takes the C type of the setter's argument: a wrong one is undefined behaviour, so they
    stand in one table, beside the names, in ``native_engine``.
    """

    cdef P handle
    cdef void (*destroy)(P) noexcept nogil
    cdef list used  # what this one refers to: freed after it
    cdef public list lacking

    def __cinit__(self, str kind, *args):
        self.used = []
        self.lacking = []
        if _library == NULL:
            raise RuntimeError("no RocksDB library is loaded")
        if kind == "options":
            self.handle, self.destroy = O.options_create(), O.options_destroy
        elif kind == "block_based_options":
            self.handle = O.block_based_options_create()
            self.destroy = O.block_based_options_destroy
        elif kind == "universal_compaction_options":
            self.handle = O.universal_compaction_options_create()
            self.destroy = O.universal_compaction_options_destroy
        elif kind == "cache":
            self.handle, self.destroy = O.cache_create_lru(args[0]), O.cache_destroy
        elif kind == "ratelimiter":
            self.handle = O.ratelimiter_create(args[0], 100_000, 10)
            self.destroy = O.ratelimiter_destroy
        elif kind == "bloom":  # taken over by the table options that it is set in
            self.handle, self.destroy = O.filterpolicy_create_bloom_full(args[0]), NULL
        else:
            raise ValueError(kind)

    def __dealloc__(self):
        if self.handle != NULL and self.destroy != NULL:
            self.destroy(self.handle)

    def set(self, str name, str kind, value):
        """Call ``rocksdb_<name>``; a library that lacks it is noted in ``lacking``."""
        cdef void *function = dlsym(_library, b"rocksdb_" + name.encode())
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
        else:
            raise ValueError(kind)


cdef class CompactionFilter:
    """Drops values of 28 bytes and more whose first eight are a number below ``minimum``.

    RocksDB's threads ask it without a lock and without the GIL. It must outlive its database.
    """

    cdef P handle
    cdef FilterState *state

    def __cinit__(self):
        self.state = <FilterState *>calloc(1, sizeof(FilterState))
        if self.state == NULL:
            raise MemoryError
        self.state.minimum = INT64_MIN
        self.handle = O.compactionfilter_create(self.state, keep_state, drop_expired, filter_name)

    def __dealloc__(self):
        if self.handle != NULL:
            O.compactionfilter_destroy(self.handle)
        free(self.state)

    def raise_minimum(self, int64_t minimum):
        """Let compactions drop what lies below; a lower minimum than before is ignored."""
        if minimum > filter_load(&self.state.minimum):
            filter_store(&self.state.minimum, minimum)

    @property
    def dropped(self):
        """Entries that compactions dropped."""
        return filter_load(&self.state.dropped)

    @property
    def seen(self):
        """Entries that compactions asked about."""
        return filter_load(&self.state.seen)


@cython.no_gc_clear  # freed before its options
cdef class TableWriter:
    """Writes one SST file; keys come in ascending order."""

    cdef P writer, env
    cdef Options options

    def __cinit__(self, bytes path, Options options):
        cdef char *error = NULL
        cdef const char *name = path
        self.options = options
        self.env = T.envoptions_create()
        self.writer = T.sstfilewriter_create(self.env, options.handle)
        with nogil:
            T.sstfilewriter_open(self.writer, name, &error)
        _check(error)

    def __dealloc__(self):
        if self.writer != NULL:
            T.sstfilewriter_destroy(self.writer)
        if self.env != NULL:
            T.envoptions_destroy(self.env)

    def put(self, bytes key, bytes value):
        """Add one entry."""
        cdef char *error = NULL
        T.sstfilewriter_put(self.writer, key, len(key), value, len(value), &error)
        _check(error)

    def put_units(self, bytes prefix, int64_t queue_offset, const uint8_t[:, ::1] units):
        """Add consecutive units of one queue."""
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = len(prefix)
        cdef Py_ssize_t at
        cdef char *error = NULL
        if length > MAX_PREFIX or units.shape[1] != UNIT_BYTES:
            raise ValueError("a prefix or a unit of the wrong length")
        memcpy(key, <const char *>prefix, length)
        with nogil:
            for at in range(units.shape[0]):
                store_be64(key + length, queue_offset + at)
                T.sstfilewriter_put(self.writer, key, length + PLACE_BYTES,
                                    <const char *>&units[at, 0], UNIT_BYTES, &error)
                if error != NULL:
                    break
        _check(error)

    def finish(self):
        """Complete the file and sync it; return its bytes."""
        cdef char *error = NULL
        cdef uint64_t size = 0
        with nogil:
            T.sstfilewriter_finish(self.writer, &error)
        _check(error)
        T.sstfilewriter_file_size(self.writer, &size)
        return size


cdef bint _below(const char *key, size_t length, const char *end, size_t end_length) noexcept nogil:
    """Return whether ``key`` sorts before ``end``."""
    cdef int order = memcmp(key, end, length if length < end_length else end_length)
    return order < 0 or (order == 0 and length < end_length)
