# RocksDB's C API, as far as it is used: a struct of functions each, with the names of its fields.
# Part of `_native.pyx`.

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

    enum { UNIT_BYTES = 28, PLACE_BYTES = 8, MAX_PREFIX = 512, CTRL = 1, MAX_MORE = 3 };
    static const char MAX_MIDDLE[] = "\\x01max\\x01";  /* in the key of a `max` entry */
    enum { IDLE_ITERATORS = 4, MAX_USES = 256 };

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

    static inline void store_be32(void *to, int32_t number) {
        unsigned char *byte = to;
        uint32_t value = (uint32_t)number;
        for (int at = 3; at >= 0; at--, value >>= 8) byte[at] = (unsigned char)value;
    }

    static inline void store_le32(void *to, uint32_t value) {
        unsigned char *byte = to;
        for (int at = 0; at < 4; at++, value >>= 8) byte[at] = (unsigned char)value;
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
    const int CTRL
    const int MAX_MORE  # bytes of the key of a `max` entry than of its queue's prefix
    const char *MAX_MIDDLE
    void store_be32(void *to, int32_t number) nogil
    void store_le32(void *to, uint32_t value) nogil
    const int IDLE_ITERATORS
    const int MAX_USES  # of idle iterators, until what they keep from being deleted is let go
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
    P (*writebatch_create_from)(const char *, size_t) noexcept nogil
    void (*writebatch_destroy)(P) noexcept nogil

cdef Objects O
_OBJECTS = b"""options_create options_destroy block_based_options_create
    block_based_options_destroy universal_compaction_options_create
    universal_compaction_options_destroy cache_create_lru cache_destroy
    filterpolicy_create_bloom_full ratelimiter_create ratelimiter_destroy compactionfilter_create
    compactionfilter_destroy options_set_compaction_filter writeoptions_create writeoptions_destroy
    writeoptions_disable_WAL readoptions_create readoptions_destroy readoptions_set_snapshot
    flushoptions_create flushoptions_destroy compactoptions_create compactoptions_destroy
    compactoptions_set_bottommost_level_compaction writebatch_create
    writebatch_create_from writebatch_destroy"""

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
    const char *(*writebatch_data)(P, size_t *) noexcept nogil
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
    writebatch_delete_cf writebatch_delete_range_cf writebatch_clear writebatch_data write get_pinned_cf
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


class ClosedError(Error):
    """The database was closed before the call, or in the middle of it."""


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
