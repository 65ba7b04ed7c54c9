# cython: language_level=3, boundscheck=False, wraparound=False
"""RocksDB's C API, found at run time, and one open database over it.

Nothing is linked: ``load`` opens a library once a process and looks its functions up. Every call
that may touch the disk gives up the GIL; the compaction filter runs in RocksDB's threads and never
needs it. What the bytes mean, which options are set, who may call when: ``native_engine``.

Invariants: a ``Database`` owns every handle it made and frees each once, users before what they
use, also when opening fails half-way; the filter's state outlives the database; nothing of a call
(iterators, pinned values) outlives it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy


cdef extern from "dlfcn.h" nogil:
    void *dlopen(const char *, int)
    void *dlsym(void *, const char *)
    char *dlerror()
    int RTLD_NOW
    int RTLD_LOCAL


cdef extern from *:
    """
    #include <stdint.h>
    #include <stddef.h>

    enum { UNIT_BYTES = 28, PLACE_BYTES = 8, MAX_PREFIX = 512 };

    static inline int64_t load_be64(const void *from) {
        const unsigned char *byte = from;
        uint64_t value = 0;
        for (int at = 0; at < 8; at++) value = value << 8 | byte[at];
        return (int64_t)value;
    }

    static inline void store_be64(void *to, int64_t number) {
        unsigned char *byte = to;
        uint64_t value = (uint64_t)number;
        for (int at = 7; at >= 0; at--, value >>= 8) byte[at] = (unsigned char)value;
    }

    /* What the compaction filter shares with the engine: any thread, no lock. */
    typedef struct { int64_t minimum; int64_t dropped; int64_t seen; } FilterState;

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
        if (value_length < UNIT_BYTES || load_be64(value) >= filter_load(&state->minimum)) return 0;
        __atomic_fetch_add(&state->dropped, 1, __ATOMIC_RELAXED);
        return 1;
    }
    static void keep_state(void *opaque) { (void)opaque; }
    static const char *filter_name(void *opaque) { (void)opaque; return "cqstore.expired"; }
    """
    const int UNIT_BYTES
    const int PLACE_BYTES
    const int MAX_PREFIX
    int64_t load_be64(const void *) nogil
    void store_be64(void *, int64_t) nogil
    ctypedef struct FilterState:
        int64_t minimum
        int64_t dropped
        int64_t seen
    int64_t filter_load(const int64_t *) nogil
    void filter_store(int64_t *, int64_t) nogil
    unsigned char drop_expired(void *, int, const char *, size_t, const char *, size_t, char **,
                               size_t *, unsigned char *) noexcept nogil
    void keep_state(void *) noexcept nogil
    const char *filter_name(void *) noexcept nogil


ctypedef void *P
ctypedef unsigned char (*Filter)(void *, int, const char *, size_t, const char *, size_t, char **,
                                 size_t *, unsigned char *) noexcept nogil

# The functions in use, each struct with the names of its fields in their order.

cdef struct Objects:
    P (*options_create)() noexcept nogil
    void (*options_destroy)(P) noexcept nogil
    P (*block_based_options_create)() noexcept nogil
    void (*block_based_options_destroy)(P) noexcept nogil
    P (*universal_compaction_options_create)() noexcept nogil
    void (*universal_compaction_options_destroy)(P) noexcept nogil
    P (*cache_create_lru)(size_t) noexcept nogil
    void (*cache_destroy)(P) noexcept nogil
    P (*filterpolicy_create_bloom_full)(double) noexcept nogil
    P (*ratelimiter_create)(int64_t, int64_t, int32_t) noexcept nogil
    void (*ratelimiter_destroy)(P) noexcept nogil
    P (*compactionfilter_create)(void *, void (*)(void *) noexcept nogil, Filter,
                                 const char *(*)(void *) noexcept nogil) noexcept nogil
    void (*compactionfilter_destroy)(P) noexcept nogil
    void (*options_set_compaction_filter)(P, P) noexcept nogil
    P (*writeoptions_create)() noexcept nogil
    void (*writeoptions_destroy)(P) noexcept nogil
    void (*writeoptions_disable_WAL)(P, int) noexcept nogil
    P (*readoptions_create)() noexcept nogil
    void (*readoptions_destroy)(P) noexcept nogil
    void (*readoptions_set_snapshot)(P, P) noexcept nogil
    P (*flushoptions_create)() noexcept nogil
    void (*flushoptions_destroy)(P) noexcept nogil
    P (*compactoptions_create)() noexcept nogil
    void (*compactoptions_destroy)(P) noexcept nogil
    void (*compactoptions_set_bottommost_level_compaction)(P, unsigned char) noexcept nogil
    P (*writebatch_create)() noexcept nogil
    void (*writebatch_destroy)(P) noexcept nogil

cdef Objects O
_OBJECTS = b"""options_create options_destroy block_based_options_create
    block_based_options_destroy universal_compaction_options_create
    universal_compaction_options_destroy cache_create_lru cache_destroy
    filterpolicy_create_bloom_full ratelimiter_create ratelimiter_destroy compactionfilter_create
    compactionfilter_destroy options_set_compaction_filter writeoptions_create writeoptions_destroy
    writeoptions_disable_WAL readoptions_create readoptions_destroy readoptions_set_snapshot
    flushoptions_create flushoptions_destroy compactoptions_create compactoptions_destroy
    compactoptions_set_bottommost_level_compaction writebatch_create writebatch_destroy"""

cdef struct Calls:
    P (*open_column_families)(P, const char *, int, const char **, P *, P *, char **) noexcept nogil
    P (*open_for_read_only_column_families)(P, const char *, int, const char **, P *, P *,
                                            unsigned char, char **) noexcept nogil
    void (*close)(P) noexcept nogil
    void (*column_family_handle_destroy)(P) noexcept nogil
    void (*cancel_all_background_work)(P, unsigned char) noexcept nogil
    void (*free)(void *) noexcept nogil
    void (*writebatch_put_cf)(P, P, const char *, size_t, const char *, size_t) noexcept nogil
    void (*writebatch_delete_cf)(P, P, const char *, size_t) noexcept nogil
    void (*writebatch_delete_range_cf)(P, P, const char *, size_t, const char *,
                                       size_t) noexcept nogil
    void (*writebatch_clear)(P) noexcept nogil
    void (*write)(P, P, P, char **) noexcept nogil
    P (*get_pinned_cf)(P, P, P, const char *, size_t, char **) noexcept nogil
    const char *(*pinnableslice_value)(P, size_t *) noexcept nogil
    void (*pinnableslice_destroy)(P) noexcept nogil
    P (*create_iterator_cf)(P, P, P) noexcept nogil
    void (*iter_seek)(P, const char *, size_t) noexcept nogil
    void (*iter_seek_for_prev)(P, const char *, size_t) noexcept nogil
    unsigned char (*iter_valid)(P) noexcept nogil
    void (*iter_next)(P) noexcept nogil
    void (*iter_prev)(P) noexcept nogil
    const char *(*iter_key)(P, size_t *) noexcept nogil
    const char *(*iter_value)(P, size_t *) noexcept nogil
    void (*iter_get_error)(P, char **) noexcept nogil
    void (*iter_destroy)(P) noexcept nogil
    void (*flush_cf)(P, P, P, char **) noexcept nogil
    void (*compact_range_cf_opt)(P, P, P, const char *, size_t, const char *,
                                 size_t) noexcept nogil
    void (*disable_manual_compaction)(P) noexcept nogil
    void (*enable_manual_compaction)(P) noexcept nogil
    void (*set_options_cf)(P, P, int, const char **, const char **, char **) noexcept nogil
    char *(*property_value_cf)(P, P, const char *) noexcept nogil
    void (*approximate_sizes_cf)(P, P, int, const char **, size_t *, const char **, size_t *,
                                 uint64_t *, char **) noexcept nogil
    P (*create_snapshot)(P) noexcept nogil
    void (*release_snapshot)(P, P) noexcept nogil
    P (*livefiles)(P) noexcept nogil
    int (*livefiles_count)(P) noexcept nogil
    const char *(*livefiles_name)(P, int) noexcept nogil
    int (*livefiles_level)(P, int) noexcept nogil
    size_t (*livefiles_size)(P, int) noexcept nogil
    uint64_t (*livefiles_entries)(P, int) noexcept nogil
    uint64_t (*livefiles_deletions)(P, int) noexcept nogil
    const char *(*livefiles_column_family_name)(P, int) noexcept nogil
    void (*livefiles_destroy)(P) noexcept nogil

cdef Calls C
_CALLS = b"""open_column_families open_for_read_only_column_families close
    column_family_handle_destroy cancel_all_background_work free writebatch_put_cf
    writebatch_delete_cf writebatch_delete_range_cf writebatch_clear write get_pinned_cf
    pinnableslice_value pinnableslice_destroy create_iterator_cf iter_seek iter_seek_for_prev
    iter_valid iter_next iter_prev iter_key iter_value iter_get_error iter_destroy flush_cf
    compact_range_cf_opt disable_manual_compaction enable_manual_compaction set_options_cf property_value_cf
    approximate_sizes_cf create_snapshot release_snapshot livefiles livefiles_count livefiles_name
    livefiles_level livefiles_size livefiles_entries livefiles_deletions
    livefiles_column_family_name livefiles_destroy"""

cdef struct Tables:
    P (*envoptions_create)() noexcept nogil
    void (*envoptions_destroy)(P) noexcept nogil
    P (*sstfilewriter_create)(P, P) noexcept nogil
    void (*sstfilewriter_open)(P, const char *, char **) noexcept nogil
    void (*sstfilewriter_put)(P, const char *, size_t, const char *, size_t, char **) noexcept nogil
    void (*sstfilewriter_finish)(P, char **) noexcept nogil
    void (*sstfilewriter_file_size)(P, uint64_t *) noexcept nogil
    void (*sstfilewriter_destroy)(P) noexcept nogil
    P (*ingestexternalfileoptions_create)() noexcept nogil
    void (*ingestexternalfileoptions_destroy)(P) noexcept nogil
    void (*ingestexternalfileoptions_set_move_files)(P, unsigned char) noexcept nogil
    void (*ingest_external_file_cf)(P, P, const char **, size_t, P, char **) noexcept nogil

cdef Tables T
_TABLES = b"""envoptions_create envoptions_destroy sstfilewriter_create sstfilewriter_open
    sstfilewriter_put sstfilewriter_finish sstfilewriter_file_size sstfilewriter_destroy
    ingestexternalfileoptions_create ingestexternalfileoptions_destroy
    ingestexternalfileoptions_set_move_files ingest_external_file_cf"""

cdef struct Optional:
    void (*flush_cfs)(P, P, P *, int, char **) noexcept nogil

cdef Optional F
_OPTIONAL = b"flush_cfs"

cdef void *_library = NULL


class Error(Exception):
    """RocksDB's own words about what went wrong; they begin with the kind of the status."""


class MissingSymbolError(Exception):
    """The library lacks functions that are needed; their names."""


def load(bytes path):
    """Open the library once a process; return the optional functions that it lacks.

    Raises:
        OSError: it cannot be loaded.
        MissingSymbolError: it is no RocksDB, or too old a one.
    """
    global _library
    if _library != NULL:
        raise RuntimeError("a RocksDB library is loaded already, and a process takes one")
    cdef void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        raise OSError(dlerror().decode(errors="replace"))
    missing = _find(library, <void **>&O, sizeof(O), _OBJECTS)
    missing += _find(library, <void **>&C, sizeof(C), _CALLS)
    missing += _find(library, <void **>&T, sizeof(T), _TABLES)
    if missing:
        raise MissingSymbolError(missing)
    lacking = _find(library, <void **>&F, sizeof(F), _OPTIONAL)
    _library = library
    return lacking


cdef list _find(void *library, void **fields, size_t size, bytes names):
    found = names.split()
    if len(found) * sizeof(void *) != size:
        raise RuntimeError("a table of functions and its names differ in length")
    missing = []
    for at, name in enumerate(found):
        fields[at] = dlsym(library, b"rocksdb_" + name)
        if fields[at] == NULL:
            missing.append("rocksdb_" + name.decode())
    return missing


cdef int _check(char *error) except -1:
    """Raise what a call reported, if it did."""
    if error == NULL:
        return 0
    text = error.decode(errors="replace")
    C.free(error)
    raise Error(text)


ctypedef void (*SetInt)(P, int) noexcept nogil
ctypedef void (*SetSize)(P, uint64_t) noexcept nogil
ctypedef void (*SetByte)(P, unsigned char) noexcept nogil
ctypedef void (*SetDouble)(P, double) noexcept nogil
ctypedef void (*SetText)(P, const char *) noexcept nogil
ctypedef void (*SetHandle)(P, P) noexcept nogil


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


cdef class Database:
    """An open database with the families ``default`` and ``offset``, numbered 0 and 1.

    Writes come from one thread at a time; everything else from any. Nobody may call during or after
    ``close``: the caller sees to that. Failures raise ``Error``.
    """

    cdef P db, writes, write_options, read_options, flush_options, compact_options
    cdef P families[2]
    cdef Options options, offset_options  # kept: the database refers to them
    cdef readonly CompactionFilter filter

    def __cinit__(self, bytes folder, Options options, Options offset_options, bint read_only,
                  bint filtered=True):
        cdef const char *names[2]
        cdef P family_options[2]
        cdef const char *path = folder
        cdef char *error = NULL
        names[0], names[1] = b"default", b"offset"
        self.options, self.offset_options = options, offset_options
        if filtered:
            self.filter = CompactionFilter()
            O.options_set_compaction_filter(options.handle, self.filter.handle)
        family_options[0], family_options[1] = options.handle, offset_options.handle
        with nogil:
            if read_only:
                self.db = C.open_for_read_only_column_families(
                    options.handle, path, 2, names, family_options, self.families, 0, &error)
            else:
                self.db = C.open_column_families(
                    options.handle, path, 2, names, family_options, self.families, &error)
        _check(error)
        self.writes = O.writebatch_create()
        self.write_options = O.writeoptions_create()
        O.writeoptions_disable_WAL(self.write_options, 1)
        self.read_options = O.readoptions_create()
        self.flush_options = O.flushoptions_create()  # waits
        self.compact_options = O.compactoptions_create()
        O.compactoptions_set_bottommost_level_compaction(self.compact_options, 2)  # force

    def __dealloc__(self):
        self.close()

    def close(self):
        """Stop compactions and release everything. A second call does nothing."""
        cdef P db = self.db
        if db != NULL:
            self.db = NULL
            with nogil:
                C.disable_manual_compaction(db)
                C.cancel_all_background_work(db, 1)
                C.column_family_handle_destroy(self.families[1])
                C.column_family_handle_destroy(self.families[0])
                C.close(db)
        if self.writes != NULL:
            O.writebatch_destroy(self.writes)
            O.writeoptions_destroy(self.write_options)
            O.readoptions_destroy(self.read_options)
            O.flushoptions_destroy(self.flush_options)
            O.compactoptions_destroy(self.compact_options)
            self.writes = NULL

    # ---- writing

    def write(self, const uint8_t[::1] prefixes, const int64_t[::1] starts,
              const int64_t[::1] prefix_index, const int64_t[::1] queue_offset,
              const uint8_t[:, ::1] units, list delete_ranges, list deletes, list puts):
        """Write one batch; prefix *i* is ``prefixes[starts[i]:starts[i + 1]]``, see ``EngineBatch``.

        Everything was checked: prefixes of at most ``MAX_PREFIX`` bytes, columns of one length.
        """
        cdef Py_ssize_t count = prefix_index.shape[0]
        cdef char *error = NULL
        cdef const char *base = <const char *>&prefixes[0] if prefixes.shape[0] else NULL
        cdef bytes start, end, key, value
        C.writebatch_clear(self.writes)
        for number, start, end in delete_ranges:
            C.writebatch_delete_range_cf(self.writes, self.families[<int>number], start, len(start),
                                         end, len(end))
        for number, key in deletes:
            C.writebatch_delete_cf(self.writes, self.families[<int>number], key, len(key))
        with nogil:
            self._add_units(base, starts, prefix_index, queue_offset, units, count)
        for key, value in puts:
            C.writebatch_put_cf(self.writes, self.families[1], key, len(key), value, len(value))
        with nogil:
            C.write(self.db, self.write_options, self.writes, &error)
            C.writebatch_clear(self.writes)
        _check(error)

    cdef void _add_units(self, const char *base, const int64_t[::1] starts,
                         const int64_t[::1] prefix_index, const int64_t[::1] queue_offset,
                         const uint8_t[:, ::1] units, Py_ssize_t count) noexcept nogil:
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = 0
        cdef int64_t prefix, current = -1
        cdef Py_ssize_t at
        for at in range(count):
            prefix = prefix_index[at]
            if prefix != current:
                current = prefix
                length = starts[prefix + 1] - starts[prefix]
                memcpy(key, base + starts[prefix], length)
            store_be64(key + length, queue_offset[at])
            C.writebatch_put_cf(self.writes, self.families[0], key, length + PLACE_BYTES,
                                <const char *>&units[at, 0], UNIT_BYTES)

    def flush_both(self):
        """Flush both families at once; return whether the library can, else nothing was done."""
        cdef char *error = NULL
        if F.flush_cfs == NULL:
            return False
        with nogil:
            F.flush_cfs(self.db, self.flush_options, self.families, 2, &error)
        _check(error)
        return True

    def flush(self, int family):
        """Flush one family."""
        cdef char *error = NULL
        with nogil:
            C.flush_cf(self.db, self.flush_options, self.families[family], &error)
        _check(error)

    def set_options(self, int family, bytes name, bytes value):
        """Change an option of a family while the database is open."""
        cdef char *error = NULL
        cdef const char *names[1]
        cdef const char *values[1]
        names[0], values[0] = name, value
        with nogil:
            C.set_options_cf(self.db, self.families[family], 1, names, values, &error)
        _check(error)

    def compact(self, int family, bytes start, bytes end):
        """Compact a range of keys, everything without bounds; ends early after ``cancel``."""
        cdef const char *low = NULL
        cdef const char *high = NULL
        cdef size_t low_length = 0, high_length = 0
        if start is not None:
            low, low_length = start, len(start)
        if end is not None:
            high, high_length = end, len(end)
        with nogil:
            C.compact_range_cf_opt(self.db, self.families[family], self.compact_options, low,
                                   low_length, high, high_length)

    def cancel_compaction(self):
        """Make running manual compactions end soon and refuse further ones."""
        with nogil:
            C.disable_manual_compaction(self.db)

    def allow_compaction(self):
        """Allow manual compactions again."""
        with nogil:
            C.enable_manual_compaction(self.db)

    def ingest(self, int family, list paths):
        """Take SST files in; they are moved (linked) where the file system allows."""
        cdef char *error = NULL
        cdef size_t count = len(paths)
        cdef const char **names = <const char **>calloc(count, sizeof(char *))
        cdef P options = T.ingestexternalfileoptions_create()
        try:
            for at in range(count):
                names[at] = <bytes>paths[at]
            T.ingestexternalfileoptions_set_move_files(options, 1)
            with nogil:
                T.ingest_external_file_cf(self.db, self.families[family], names, count, options,
                                          &error)
        finally:
            T.ingestexternalfileoptions_destroy(options)
            free(names)
        _check(error)

    # ---- reading

    def get(self, int family, bytes key):
        """Return one value, ``None`` if there is none."""
        return self._get(self.read_options, family, key)

    def multi_get(self, int family, list keys):
        """Return the value, or ``None``, of each key."""
        return [self._get(self.read_options, family, key) for key in keys]

    cdef object _get(self, P read_options, int family, bytes key):
        cdef const char *data = key
        cdef size_t length = len(key), size = 0
        cdef char *error = NULL
        cdef P slice
        cdef const char *value
        with nogil:
            slice = C.get_pinned_cf(self.db, read_options, self.families[family], data, length,
                                    &error)
        _check(error)
        if slice == NULL:
            return None
        value = C.pinnableslice_value(slice, &size)
        try:
            return PyBytes_FromStringAndSize(value, size)
        finally:
            C.pinnableslice_destroy(slice)

    def scan_units(self, bytes prefix, int64_t queue_offset, int64_t count):
        """Return ``(data, stop, next offset)``, see ``scan_into``."""
        cdef bytes data = PyBytes_FromStringAndSize(NULL, count * UNIT_BYTES)
        cdef int64_t taken, following
        taken, stop, following = self._scan(
            self.read_options, prefix, queue_offset, count, <uint8_t *>PyBytes_AS_STRING(data))
        return data if taken == count else data[:taken * UNIT_BYTES], stop, following

    def scan_into(self, bytes prefix, int64_t queue_offset, uint8_t[:, ::1] target):
        """Fill rows of 28 bytes with consecutive units; return ``(rows, stop, next offset)``.

        ``stop``: 0 the buffer is full, 1 no further unit of the queue, 2 a hole before ``next
        offset``, 3 the value at ``next offset`` is too short.
        """
        return self._scan_into(self.read_options, prefix, queue_offset, target)

    cdef tuple _scan_into(self, P read_options, bytes prefix, int64_t queue_offset,
                          uint8_t[:, ::1] target):
        if target.shape[1] != UNIT_BYTES:
            raise ValueError("rows of 28 bytes are needed")
        if not target.shape[0]:
            return 0, 0, queue_offset
        return self._scan(read_options, prefix, queue_offset, target.shape[0], &target[0, 0])

    cdef tuple _scan(self, P read_options, bytes prefix, int64_t queue_offset, int64_t count,
                     uint8_t *target):
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = len(prefix), size = 0
        cdef const char *found
        cdef const char *value
        cdef int64_t taken = 0, there = queue_offset
        cdef int stop = 0
        cdef char *error = NULL
        cdef P units
        if length > MAX_PREFIX:
            raise ValueError("the prefix is too long")
        memcpy(key, <const char *>prefix, length)
        store_be64(key + length, queue_offset)
        with nogil:
            units = C.create_iterator_cf(self.db, read_options, self.families[0])
            C.iter_seek(units, key, length + PLACE_BYTES)
            while taken < count:
                if not C.iter_valid(units):
                    stop = 1
                    break
                found = C.iter_key(units, &size)
                if size < length or memcmp(found, key, length) != 0:
                    stop = 1
                    break
                if size == length + PLACE_BYTES:
                    there = load_be64(found + length)
                    if there != queue_offset + taken:
                        stop = 2
                        break
                    value = C.iter_value(units, &size)
                    if size < <size_t>UNIT_BYTES:
                        stop = 3
                        break
                    memcpy(target + taken * UNIT_BYTES, value, UNIT_BYTES)
                    taken += 1
                if taken < count:
                    C.iter_next(units)
            if stop == 1:
                C.iter_get_error(units, &error)
            C.iter_destroy(units)
        _check(error)
        return taken, stop, there if stop >= 2 else queue_offset + taken

    def neighbour(self, bytes prefix, int64_t queue_offset, bint forward):
        """Return ``(offset, value)`` of the unit at or next to an offset, ``None`` without one."""
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = len(prefix), size = 0
        cdef const char *found
        cdef const char *value
        cdef bint there = False
        cdef char *error = NULL
        cdef P units
        if length > MAX_PREFIX:
            raise ValueError("the prefix is too long")
        memcpy(key, <const char *>prefix, length)
        store_be64(key + length, queue_offset)
        with nogil:
            units = C.create_iterator_cf(self.db, self.read_options, self.families[0])
            if forward:
                C.iter_seek(units, key, length + PLACE_BYTES)
            else:
                C.iter_seek_for_prev(units, key, length + PLACE_BYTES)
            while C.iter_valid(units):
                found = C.iter_key(units, &size)
                if size < length or memcmp(found, key, length) != 0:
                    break
                if size == length + PLACE_BYTES:
                    there = True
                    break
                if forward:
                    C.iter_next(units)
                else:
                    C.iter_prev(units)
            if not there:
                C.iter_get_error(units, &error)
        try:
            _check(error)
            if not there:
                return None
            found = C.iter_key(units, &size)
            offset = load_be64(found + length)
            value = C.iter_value(units, &size)
            return offset, PyBytes_FromStringAndSize(value, size)
        finally:
            C.iter_destroy(units)

    def scan(self, int family, bytes start, bytes end, int64_t limit):
        """Return at most ``limit`` entries of ``start <= key < end`` as pairs, in key order."""
        cdef size_t size = 0, end_length = len(end)
        cdef const char *low = start
        cdef size_t low_length = len(start)
        cdef const char *high = end
        cdef const char *found
        cdef const char *value
        cdef char *error = NULL
        cdef P entries
        cdef list rows = []
        with nogil:
            entries = C.create_iterator_cf(self.db, self.read_options, self.families[family])
            C.iter_seek(entries, low, low_length)
        try:
            while C.iter_valid(entries) and len(rows) < limit:
                found = C.iter_key(entries, &size)
                if not _below(found, size, high, end_length):
                    return rows
                key = PyBytes_FromStringAndSize(found, size)
                value = C.iter_value(entries, &size)
                rows.append((key, PyBytes_FromStringAndSize(value, size)))
                with nogil:
                    C.iter_next(entries)
            if len(rows) < limit:
                C.iter_get_error(entries, &error)
                _check(error)
            return rows
        finally:
            C.iter_destroy(entries)

    # ---- facts

    def property_value(self, int family, bytes name):
        """Return one of RocksDB's properties, ``None`` if it knows none of that name."""
        cdef char *text = C.property_value_cf(self.db, self.families[family], name)
        if text == NULL:
            return None
        try:
            return text.decode(errors="replace")
        finally:
            C.free(text)

    def approximate_size(self, int family, bytes start, bytes end):
        """Return about how many bytes of table files a range of keys takes."""
        cdef const char *low[1]
        cdef const char *high[1]
        cdef size_t low_length[1]
        cdef size_t high_length[1]
        cdef uint64_t size[1]
        cdef char *error = NULL
        low[0], high[0] = start, end
        low_length[0], high_length[0] = len(start), len(end)
        with nogil:
            C.approximate_sizes_cf(self.db, self.families[family], 1, low, low_length, high,
                                   high_length, size, &error)
        _check(error)
        return size[0]

    def live_files(self):
        """Return ``(name, size, level, entries, deletions, family)`` of each table file."""
        cdef P files = C.livefiles(self.db)
        try:
            return [
                (C.livefiles_name(files, at).decode(), C.livefiles_size(files, at),
                 C.livefiles_level(files, at), C.livefiles_entries(files, at),
                 C.livefiles_deletions(files, at),
                 C.livefiles_column_family_name(files, at).decode())
                for at in range(C.livefiles_count(files))
            ]
        finally:
            C.livefiles_destroy(files)


cdef bint _below(const char *key, size_t length, const char *end, size_t end_length) noexcept nogil:
    """Return whether ``key`` sorts before ``end``."""
    cdef int order = memcmp(key, end, length if length < end_length else end_length)
    return order < 0 or (order == 0 and length < end_length)


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


cdef class Snapshot:
    """The database as of one moment; everything that is read through it agrees."""

    cdef Database database
    cdef P snapshot, read_options

    def __cinit__(self, Database database):
        self.database = database
        self.snapshot = C.create_snapshot(database.db)
        self.read_options = O.readoptions_create()
        O.readoptions_set_snapshot(self.read_options, self.snapshot)

    def __dealloc__(self):
        self.release()

    def release(self):
        """Let the moment go, before the database is closed. A second call does nothing."""
        if self.read_options != NULL:
            O.readoptions_destroy(self.read_options)
            self.read_options = NULL
            if self.database.db != NULL:
                C.release_snapshot(self.database.db, self.snapshot)

    def get(self, int family, bytes key):
        """Return one value, ``None`` if there is none."""
        return self.database._get(self.read_options, family, key)

    def scan_into(self, bytes prefix, int64_t queue_offset, uint8_t[:, ::1] target):
        """As ``Database.scan_into``."""
        return self.database._scan_into(self.read_options, prefix, queue_offset, target)
