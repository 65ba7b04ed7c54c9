# The used part of RocksDB's C API: a table of its functions, which `_capi.pyx` fills.

from libc.stdint cimport int32_t, int64_t, uint64_t

ctypedef void *Handle  # an object of RocksDB
ctypedef unsigned char (*Filter)(void *, int, const char *, size_t, const char *, size_t, char **,
                                 size_t *, unsigned char *) noexcept nogil


cdef struct Functions:
    # Named as in `rocksdb/c.h`, without `rocksdb_`. The names in `_capi.pyx` have this order.
    # Options, filters, settings of a call:
    Handle (*options_create)() noexcept nogil
    void (*options_destroy)(Handle) noexcept nogil
    Handle (*block_based_options_create)() noexcept nogil
    void (*block_based_options_destroy)(Handle) noexcept nogil
    Handle (*universal_compaction_options_create)() noexcept nogil
    void (*universal_compaction_options_destroy)(Handle) noexcept nogil
    Handle (*cache_create_lru)(size_t) noexcept nogil
    void (*cache_destroy)(Handle) noexcept nogil
    Handle (*filterpolicy_create_bloom_full)(double) noexcept nogil
    Handle (*ratelimiter_create)(int64_t, int64_t, int32_t) noexcept nogil
    void (*ratelimiter_destroy)(Handle) noexcept nogil
    Handle (*compactionfilter_create)(void *, void (*)(void *) noexcept nogil, Filter,
                                      const char *(*)(void *) noexcept nogil) noexcept nogil
    void (*compactionfilter_destroy)(Handle) noexcept nogil
    void (*options_set_compaction_filter)(Handle, Handle) noexcept nogil
    Handle (*writeoptions_create)() noexcept nogil
    void (*writeoptions_destroy)(Handle) noexcept nogil
    void (*writeoptions_disable_WAL)(Handle, int) noexcept nogil
    Handle (*readoptions_create)() noexcept nogil
    void (*readoptions_destroy)(Handle) noexcept nogil
    void (*readoptions_set_snapshot)(Handle, Handle) noexcept nogil
    Handle (*flushoptions_create)() noexcept nogil
    void (*flushoptions_destroy)(Handle) noexcept nogil
    Handle (*compactoptions_create)() noexcept nogil
    void (*compactoptions_destroy)(Handle) noexcept nogil
    void (*compactoptions_set_bottommost_level_compaction)(Handle, unsigned char) noexcept nogil
    Handle (*writebatch_create)() noexcept nogil
    Handle (*writebatch_create_from)(const char *, size_t) noexcept nogil
    void (*writebatch_destroy)(Handle) noexcept nogil
    # An open database:
    Handle (*open_column_families)(Handle, const char *, int, const char **, Handle *, Handle *,
                                   char **) noexcept nogil
    Handle (*open_for_read_only_column_families)(Handle, const char *, int, const char **, Handle *,
                                                 Handle *, unsigned char, char **) noexcept nogil
    void (*close)(Handle) noexcept nogil
    void (*column_family_handle_destroy)(Handle) noexcept nogil
    void (*cancel_all_background_work)(Handle, unsigned char) noexcept nogil
    void (*free)(void *) noexcept nogil
    void (*writebatch_put_cf)(Handle, Handle, const char *, size_t, const char *,
                              size_t) noexcept nogil
    void (*writebatch_delete_cf)(Handle, Handle, const char *, size_t) noexcept nogil
    void (*writebatch_delete_range_cf)(Handle, Handle, const char *, size_t, const char *,
                                       size_t) noexcept nogil
    void (*writebatch_clear)(Handle) noexcept nogil
    const char *(*writebatch_data)(Handle, size_t *) noexcept nogil
    void (*write)(Handle, Handle, Handle, char **) noexcept nogil
    Handle (*get_pinned_cf)(Handle, Handle, Handle, const char *, size_t, char **) noexcept nogil
    const char *(*pinnableslice_value)(Handle, size_t *) noexcept nogil
    void (*pinnableslice_destroy)(Handle) noexcept nogil
    Handle (*create_iterator_cf)(Handle, Handle, Handle) noexcept nogil
    void (*iter_seek)(Handle, const char *, size_t) noexcept nogil
    void (*iter_seek_for_prev)(Handle, const char *, size_t) noexcept nogil
    unsigned char (*iter_valid)(Handle) noexcept nogil
    void (*iter_next)(Handle) noexcept nogil
    void (*iter_prev)(Handle) noexcept nogil
    const char *(*iter_key)(Handle, size_t *) noexcept nogil
    const char *(*iter_value)(Handle, size_t *) noexcept nogil
    void (*iter_get_error)(Handle, char **) noexcept nogil
    void (*iter_destroy)(Handle) noexcept nogil
    void (*flush_cf)(Handle, Handle, Handle, char **) noexcept nogil
    void (*compact_range_cf_opt)(Handle, Handle, Handle, const char *, size_t, const char *,
                                 size_t) noexcept nogil
    void (*disable_manual_compaction)(Handle) noexcept nogil
    void (*enable_manual_compaction)(Handle) noexcept nogil
    void (*set_options_cf)(Handle, Handle, int, const char **, const char **,
                           char **) noexcept nogil
    char *(*property_value_cf)(Handle, Handle, const char *) noexcept nogil
    void (*approximate_sizes_cf)(Handle, Handle, int, const char **, size_t *, const char **,
                                 size_t *, uint64_t *, char **) noexcept nogil
    Handle (*create_snapshot)(Handle) noexcept nogil
    void (*release_snapshot)(Handle, Handle) noexcept nogil
    Handle (*livefiles)(Handle) noexcept nogil
    int (*livefiles_count)(Handle) noexcept nogil
    const char *(*livefiles_name)(Handle, int) noexcept nogil
    int (*livefiles_level)(Handle, int) noexcept nogil
    size_t (*livefiles_size)(Handle, int) noexcept nogil
    uint64_t (*livefiles_entries)(Handle, int) noexcept nogil
    uint64_t (*livefiles_deletions)(Handle, int) noexcept nogil
    const char *(*livefiles_column_family_name)(Handle, int) noexcept nogil
    void (*livefiles_destroy)(Handle) noexcept nogil
    # SST files:
    Handle (*envoptions_create)() noexcept nogil
    void (*envoptions_destroy)(Handle) noexcept nogil
    Handle (*sstfilewriter_create)(Handle, Handle) noexcept nogil
    void (*sstfilewriter_open)(Handle, const char *, char **) noexcept nogil
    void (*sstfilewriter_put)(Handle, const char *, size_t, const char *, size_t,
                              char **) noexcept nogil
    void (*sstfilewriter_finish)(Handle, char **) noexcept nogil
    void (*sstfilewriter_file_size)(Handle, uint64_t *) noexcept nogil
    void (*sstfilewriter_destroy)(Handle) noexcept nogil
    Handle (*ingestexternalfileoptions_create)() noexcept nogil
    void (*ingestexternalfileoptions_destroy)(Handle) noexcept nogil
    void (*ingestexternalfileoptions_set_move_files)(Handle, unsigned char) noexcept nogil
    void (*ingest_external_file_cf)(Handle, Handle, const char **, size_t, Handle,
                                    char **) noexcept nogil


cdef struct OptionalFunctions:
    # NULL if the library lacks it.
    void (*flush_cfs)(Handle, Handle, Handle *, int, char **) noexcept nogil


cdef Functions rocksdb
cdef OptionalFunctions optional

cdef bint is_loaded() noexcept
cdef void *function_of(str name) except? NULL
cdef int raise_status(char *error) except -1


cdef inline int check(char *error) except -1:
    """Raise the error that a call reported, if any."""
    return 0 if error == NULL else raise_status(error)
