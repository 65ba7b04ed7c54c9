# cython: language_level=3, boundscheck=False, wraparound=False
"""Database: an open database over RocksDB's C API.

Every call that may access the disk releases the GIL. ``native_engine`` defines the meaning of the
bytes, the options, and who may call when. A database owns every handle that it created and frees
each one once, users before what they use, even if opening fails halfway. The filter's state
outlives the database; objects of a call (iterators, pinned values) do not.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy
from posix.unistd cimport getpid

from cqstore.cq_rocksdb.engine._capi cimport Handle, check, optional, rocksdb
from cqstore.cq_rocksdb.engine._keys cimport (
    MAX_PREFIX, PLACE_BYTES, UNIT_BYTES, begin_key, is_below,
)
from cqstore.cq_rocksdb.engine._options cimport CompactionFilter, Options
from cqstore.cq_rocksdb.engine._units cimport HOLE, NO_MORE, copy_units, find_unit, search_units
from cqstore.cq_rocksdb.engine._write_batch cimport WriteBatchColumns, BatchMemory
from cqstore.store.core._bytes cimport load64, store64

from cqstore.cq_rocksdb.engine._capi import ClosedError


@cython.no_gc_clear  # options and filter are in use until the database is closed
cdef class Database:
    """An open database with any families, numbered in the given order, the first one ``default``.

    The options of ``default`` also apply to the database; it contains the units and has the
    compaction filter. One thread at a time may write; any thread may call the rest. The caller
    ensures that no other thread calls during ``close``. A call after ``close``, or one in which a
    signal handler closed the database, raises ``ClosedError``; other failures raise ``Error``.
    """

    def __cinit__(self, bytes folder, list names, list options, bint read_only, bint filtered=True):
        cdef const char *path = folder
        cdef char *error = NULL
        cdef tuple held = tuple(names)  # keeps their bytes alive while other threads run
        cdef bytes name
        cdef int at, count = len(held)
        cdef const char **named = <const char **>calloc(count, sizeof(char *))
        cdef Handle *handles = <Handle *>calloc(count, sizeof(Handle))
        self.families = <Handle *>calloc(count, sizeof(Handle))
        self.family_count, self.options, self.built = count, list(options), BatchMemory()
        try:
            if len(self.options) != count:
                raise ValueError("the numbers of family names and options differ")
            if named == NULL or handles == NULL or self.families == NULL:
                raise MemoryError
            for at in range(count):
                name = held[at]
                named[at] = name
                handles[at] = (<Options?>self.options[at]).handle
            if filtered:
                self.filter = CompactionFilter()
                rocksdb.options_set_compaction_filter(handles[0], self.filter.handle)
            with nogil:
                if read_only:
                    self.db = rocksdb.open_for_read_only_column_families(
                        handles[0], path, count, named, handles, self.families, 0, &error)
                else:
                    self.db = rocksdb.open_column_families(
                        handles[0], path, count, named, handles, self.families, &error)
        finally:
            free(named)
            free(handles)
        check(error)
        self.opened_by = getpid()
        self.writes = rocksdb.writebatch_create()
        self.write_options = rocksdb.writeoptions_create()
        rocksdb.writeoptions_disable_WAL(self.write_options, 1)
        self.read_options = rocksdb.readoptions_create()
        self.flush_options = rocksdb.flushoptions_create()  # waits
        self.compact_options = rocksdb.compactoptions_create()
        rocksdb.compactoptions_set_bottommost_level_compaction(self.compact_options, 2)  # force

    def __dealloc__(self):
        self.close()
        free(self.families)

    def close(self):
        """Stop compactions and release everything. A second call does nothing."""
        cdef Handle db = self.db
        cdef int at
        if db != NULL:
            if getpid() != self.opened_by:
                return
            self.release_iterators()
            self.db = NULL
            with nogil:
                rocksdb.disable_manual_compaction(db)
                rocksdb.cancel_all_background_work(db, 1)
                for at in range(self.family_count):
                    rocksdb.column_family_handle_destroy(self.families[at])
                rocksdb.close(db)
        if self.writes != NULL:
            rocksdb.writebatch_destroy(self.writes)
            rocksdb.writeoptions_destroy(self.write_options)
            rocksdb.readoptions_destroy(self.read_options)
            rocksdb.flushoptions_destroy(self.flush_options)
            rocksdb.compactoptions_destroy(self.compact_options)
            self.writes = NULL

    cdef int check_open(self) except -1:
        if self.db == NULL:
            raise ClosedError("the database is closed")
        return 0

    cdef release_iterators(self):
        """Release the idle iterators, and with them the files whose deletion they prevent."""
        cdef Handle idle[IDLE_ITERATORS]
        cdef int at, count = self.idle_count
        memcpy(idle, self.idle, sizeof(idle))
        self.changes += 1
        self.idle_count = 0
        if count:
            with nogil:
                for at in range(count):
                    rocksdb.iter_destroy(idle[at])

    cdef Handle _iterator(self):
        """Return an iterator over the current units, to be passed to ``_return_iterator``."""
        cdef Handle units
        if self.idle_count:
            self.idle_count -= 1
            return self.idle[self.idle_count]
        with nogil:
            units = rocksdb.create_iterator_cf(self.db, self.read_options, self.families[0])
        return units

    cdef void _return_iterator(self, Handle units, int64_t changes):
        """Keep an iterator for the next scan, if nothing was written since it was created."""
        self.idle_uses += 1
        if self.idle_uses >= MAX_USES:
            self.idle_uses = 0
            self.release_iterators()
        if changes == self.changes and self.idle_count < IDLE_ITERATORS:
            self.idle[self.idle_count] = units
            self.idle_count += 1
        else:
            with nogil:
                rocksdb.iter_destroy(units)

    # ---- writing

    def write(self, WriteBatchColumns batch not None):
        """Apply ``batch``, all of it or nothing."""
        cdef char *error = NULL
        self.check_open()
        rocksdb.writebatch_clear(self.writes)
        batch.add_to(self.writes, self.families)
        with nogil:
            rocksdb.write(self.db, self.write_options, self.writes, &error)
            rocksdb.writebatch_clear(self.writes)
        self.release_iterators()
        check(error)

    def flush_all(self):
        """Flush all families at once; return False, without a flush, if the library cannot."""
        cdef char *error = NULL
        self.check_open()
        if optional.flush_cfs == NULL:
            return False
        with nogil:
            optional.flush_cfs(
                self.db, self.flush_options, self.families, self.family_count, &error
            )
        self.release_iterators()
        check(error)
        return True

    def flush(self, int family):
        """Flush one family."""
        cdef char *error = NULL
        self.check_open()
        with nogil:
            rocksdb.flush_cf(self.db, self.flush_options, self.families[family], &error)
        self.release_iterators()
        check(error)

    def set_options(self, int family, bytes name, bytes value):
        """Change an option of a family while the database is open."""
        cdef char *error = NULL
        cdef const char *names[1]
        cdef const char *values[1]
        self.check_open()
        names[0], values[0] = name, value
        with nogil:
            rocksdb.set_options_cf(self.db, self.families[family], 1, names, values, &error)
        check(error)

    def compact(self, int family, bytes start, bytes end):
        """Compact a range of keys; without bounds, everything. Ends early after ``cancel``."""
        cdef const char *low = NULL
        cdef const char *high = NULL
        cdef size_t low_length = 0, high_length = 0
        self.check_open()
        if start is not None:
            low, low_length = start, len(start)
        if end is not None:
            high, high_length = end, len(end)
        with nogil:
            rocksdb.compact_range_cf_opt(
                self.db, self.families[family], self.compact_options, low, low_length, high,
                high_length,
            )
        self.release_iterators()

    def cancel_compaction(self):
        """Make running manual compactions end soon and refuse further ones."""
        self.check_open()
        with nogil:
            rocksdb.disable_manual_compaction(self.db)

    def allow_compaction(self):
        """Allow manual compactions again."""
        self.check_open()
        with nogil:
            rocksdb.enable_manual_compaction(self.db)

    def ingest(self, int family, list paths):
        """Ingest SST files; they are moved (linked) if the file system allows it."""
        cdef char *error = NULL
        cdef tuple held = tuple(paths)  # keeps their bytes alive while other threads run
        cdef bytes path
        cdef size_t count = len(held)
        cdef const char **names = <const char **>calloc(count, sizeof(char *))
        cdef Handle options = rocksdb.ingestexternalfileoptions_create()
        try:
            self.check_open()
            if names == NULL:
                raise MemoryError
            for at in range(count):
                path = held[at]
                names[at] = path
            rocksdb.ingestexternalfileoptions_set_move_files(options, 1)
            with nogil:
                rocksdb.ingest_external_file_cf(
                    self.db, self.families[family], names, count, options, &error
                )
        finally:
            rocksdb.ingestexternalfileoptions_destroy(options)
            free(names)
            self.release_iterators()
        check(error)

    # ---- reading

    def get(self, int family, bytes key):
        """Return the value of ``key``; ``None``: there is none."""
        return self.get_with(self.read_options, family, key)

    def multi_get(self, int family, list keys):
        """Return the value, or ``None``, of each key."""
        return [self.get_with(self.read_options, family, key) for key in keys]

    cdef object get_with(self, Handle read_options, int family, bytes key):
        cdef const char *data = key
        cdef size_t length = len(key), size = 0
        cdef char *error = NULL
        cdef Handle slice
        cdef const char *value
        self.check_open()
        with nogil:
            slice = rocksdb.get_pinned_cf(
                self.db, read_options, self.families[family], data, length, &error
            )
        check(error)
        if slice == NULL:
            return None
        value = rocksdb.pinnableslice_value(slice, &size)
        try:
            return PyBytes_FromStringAndSize(value, size)
        finally:
            rocksdb.pinnableslice_destroy(slice)

    def search(
        self, bytes prefix, int64_t low, int64_t high, int64_t timestamp, bint upper,
        int64_t min_phy, int64_t max_phy,
    ):
        """Return the offset in [low, high) for ``timestamp``, by the steps of ``search_offset``.

        A unit has the store time -1 if it is missing, too short, or its record is outside the log,
        [min_phy, max_phy).
        """
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = begin_key(key, prefix)
        cdef char *error = NULL
        cdef int64_t found, changes = self.changes
        cdef Handle units
        self.check_open()
        units = self._iterator()
        with nogil:
            found = search_units(
                units, key, length, low, high, timestamp, upper, min_phy, max_phy, &error
            )
            if error != NULL:
                rocksdb.iter_destroy(units)
        if error == NULL:
            self._return_iterator(units, changes)
        check(error)
        return found

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
        return self.scan_with(self.read_options, prefix, queue_offset, target)

    cdef tuple scan_with(
        self, Handle read_options, bytes prefix, int64_t queue_offset, uint8_t[:, ::1] target
    ):
        if target.shape[1] != UNIT_BYTES:
            raise ValueError("rows must have 28 bytes")
        if not target.shape[0]:
            return 0, 0, queue_offset
        return self._scan(read_options, prefix, queue_offset, target.shape[0], &target[0, 0])

    cdef tuple _scan(
        self, Handle read_options, bytes prefix, int64_t queue_offset, int64_t count,
        uint8_t *target,
    ):
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = begin_key(key, prefix)
        cdef int64_t taken, there, changes = self.changes
        cdef int stop
        cdef char *error = NULL
        cdef bint own = read_options != self.read_options  # a snapshot's
        cdef Handle units
        self.check_open()
        store64(key + length, queue_offset)
        units = NULL if own else self._iterator()
        with nogil:
            if own:
                units = rocksdb.create_iterator_cf(self.db, read_options, self.families[0])
            taken = copy_units(units, key, length, queue_offset, count, target, &stop, &there)
            if stop == NO_MORE:
                rocksdb.iter_get_error(units, &error)
            if own or error != NULL:
                rocksdb.iter_destroy(units)
        if not own and error == NULL:
            self._return_iterator(units, changes)
        check(error)
        return taken, stop, there if stop >= HOLE else queue_offset + taken

    def neighbour(self, bytes prefix, int64_t queue_offset, bint forward):
        """Return ``(offset, value)`` of the unit at or next to an offset, or ``None``."""
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = begin_key(key, prefix), size = 0
        cdef const char *found
        cdef const char *unit
        cdef bint there
        cdef int64_t offset = 0
        cdef char *error = NULL
        cdef Handle units
        self.check_open()
        store64(key + length, queue_offset)
        with nogil:
            units = rocksdb.create_iterator_cf(self.db, self.read_options, self.families[0])
            there = find_unit(units, key, length, forward)
            if not there:
                rocksdb.iter_get_error(units, &error)
        value = None  # with an open iterator, create no Python object but bytes: any other may
        if there:  # run the garbage collector, and so a finalizer that closes the database
            found = rocksdb.iter_key(units, &size)
            offset = load64(found + length)
            unit = rocksdb.iter_value(units, &size)
            try:
                value = PyBytes_FromStringAndSize(unit, size)
            finally:
                rocksdb.iter_destroy(units)
        else:
            rocksdb.iter_destroy(units)
        check(error)
        return (offset, value) if there else None

    def scan(self, int family, bytes start, bytes end, int64_t limit):
        """Return at most ``limit`` entries of ``start <= key < end`` as pairs, in key order."""
        cdef size_t size = 0, end_length = len(end)
        cdef const char *low = start
        cdef size_t low_length = len(start)
        cdef const char *high = end
        cdef const char *found
        cdef const char *value
        cdef char *error = NULL
        cdef Handle entries
        cdef list keys = [], values = []  # no tuples while an iterator is open, see neighbour
        self.check_open()
        with nogil:
            entries = rocksdb.create_iterator_cf(self.db, self.read_options, self.families[family])
            rocksdb.iter_seek(entries, low, low_length)
        try:
            while rocksdb.iter_valid(entries) and len(keys) < limit:
                found = rocksdb.iter_key(entries, &size)
                if not is_below(found, size, high, end_length):
                    limit = len(keys)
                    break
                keys.append(PyBytes_FromStringAndSize(found, size))
                value = rocksdb.iter_value(entries, &size)
                values.append(PyBytes_FromStringAndSize(value, size))
                with nogil:
                    rocksdb.iter_next(entries)
            if len(keys) < limit:
                rocksdb.iter_get_error(entries, &error)
        finally:
            rocksdb.iter_destroy(entries)
        check(error)
        return list(zip(keys, values))

    # ---- facts

    def property_value(self, int family, bytes name):
        """Return a property of RocksDB; ``None``: the name is unknown."""
        cdef char *text
        self.check_open()
        text = rocksdb.property_value_cf(self.db, self.families[family], name)
        if text == NULL:
            return None
        try:
            return text.decode(errors="replace")
        finally:
            rocksdb.free(text)

    def approximate_size(self, int family, bytes start, bytes end):
        """Return the approximate size of a range of keys in table files, in bytes."""
        cdef const char *low[1]
        cdef const char *high[1]
        cdef size_t low_length[1]
        cdef size_t high_length[1]
        cdef uint64_t size[1]
        cdef char *error = NULL
        self.check_open()
        low[0], high[0] = start, end
        low_length[0], high_length[0] = len(start), len(end)
        with nogil:
            rocksdb.approximate_sizes_cf(
                self.db, self.families[family], 1, low, low_length, high, high_length, size, &error
            )
        check(error)
        return size[0]

    def live_files(self):
        """Return ``(name, size, level, entries, deletions, family)`` of each table file."""
        cdef Handle files
        self.check_open()
        files = rocksdb.livefiles(self.db)
        try:
            return [
                (rocksdb.livefiles_name(files, at).decode(), rocksdb.livefiles_size(files, at),
                 rocksdb.livefiles_level(files, at), rocksdb.livefiles_entries(files, at),
                 rocksdb.livefiles_deletions(files, at),
                 rocksdb.livefiles_column_family_name(files, at).decode())
                for at in range(rocksdb.livefiles_count(files))
            ]
        finally:
            rocksdb.livefiles_destroy(files)
