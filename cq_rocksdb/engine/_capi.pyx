# cython: language_level=3, boundscheck=False, wraparound=False
"""RocksDB's C API, found at run time.

Nothing is linked: ``load`` opens a library once per process and fills a table of its functions,
which the other modules call through ``_capi.pxd``. Every call that may touch the disk gives up the
GIL.
"""

cdef extern from "dlfcn.h" nogil:
    void *dlopen(const char *, int)
    void *dlsym(void *, const char *)
    char *dlerror()
    int RTLD_NOW
    int RTLD_LOCAL


_NAMES = b"""options_create options_destroy block_based_options_create
    block_based_options_destroy universal_compaction_options_create
    universal_compaction_options_destroy cache_create_lru cache_destroy
    filterpolicy_create_bloom_full ratelimiter_create ratelimiter_destroy compactionfilter_create
    compactionfilter_destroy options_set_compaction_filter writeoptions_create writeoptions_destroy
    writeoptions_disable_WAL readoptions_create readoptions_destroy readoptions_set_snapshot
    flushoptions_create flushoptions_destroy compactoptions_create compactoptions_destroy
    compactoptions_set_bottommost_level_compaction writebatch_create
    writebatch_create_from writebatch_destroy

    open_column_families open_for_read_only_column_families close
    column_family_handle_destroy cancel_all_background_work free writebatch_put_cf
    writebatch_delete_cf writebatch_delete_range_cf writebatch_clear writebatch_data write
    get_pinned_cf pinnableslice_value pinnableslice_destroy create_iterator_cf iter_seek
    iter_seek_for_prev iter_valid iter_next iter_prev iter_key iter_value iter_get_error
    iter_destroy flush_cf compact_range_cf_opt disable_manual_compaction enable_manual_compaction
    set_options_cf property_value_cf approximate_sizes_cf create_snapshot release_snapshot
    livefiles livefiles_count livefiles_name livefiles_level livefiles_size livefiles_entries
    livefiles_deletions livefiles_column_family_name livefiles_destroy

    envoptions_create envoptions_destroy sstfilewriter_create sstfilewriter_open
    sstfilewriter_put sstfilewriter_finish sstfilewriter_file_size sstfilewriter_destroy
    ingestexternalfileoptions_create ingestexternalfileoptions_destroy
    ingestexternalfileoptions_set_move_files ingest_external_file_cf"""
_OPTIONAL_NAMES = b"flush_cfs"

cdef void *_library = NULL


class Error(Exception):
    """An error with RocksDB's own text, which begins with the kind of the status."""


class ClosedError(Error):
    """The database was closed before the call, or in the middle of it."""


class MissingSymbolError(Exception):
    """The library lacks required functions; the message lists their names."""


def load(bytes path):
    """Open the library once per process; return the missing optional functions.

    Raises:
        OSError: the library cannot be loaded.
        MissingSymbolError: the library is not RocksDB, or is too old.
    """
    global _library
    if _library != NULL:
        raise RuntimeError("a RocksDB library is already loaded, and a process can load only one")
    cdef void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL)
    if library == NULL:
        raise OSError(dlerror().decode(errors="replace"))
    missing = _find(library, <void **>&rocksdb, sizeof(rocksdb), _NAMES)
    if missing:
        raise MissingSymbolError(missing)
    lacking = _find(library, <void **>&optional, sizeof(optional), _OPTIONAL_NAMES)
    _library = library
    return lacking


cdef list _find(void *library, void **fields, size_t size, bytes names):
    found = names.split()
    if len(found) * sizeof(void *) != size:
        raise RuntimeError("the numbers of functions and names differ")
    missing = []
    for at, name in enumerate(found):
        fields[at] = dlsym(library, b"rocksdb_" + name)
        if fields[at] == NULL:
            missing.append("rocksdb_" + name.decode())
    return missing


cdef bint is_loaded() noexcept:
    return _library != NULL


cdef void *function_of(str name) except? NULL:
    """Return the function ``rocksdb_<name>`` of the library, or ``NULL``."""
    return dlsym(_library, b"rocksdb_" + name.encode())


cdef int raise_status(char *error) except -1:
    """Raise the status text that a call returned, and free the text."""
    text = error.decode(errors="replace")
    rocksdb.free(error)
    raise Error(text)
