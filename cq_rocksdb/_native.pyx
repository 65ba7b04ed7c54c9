# cython: language_level=3, boundscheck=False, wraparound=False
"""RocksDB's C API, found at run time, and one open database over it.

Nothing is linked: ``load`` opens a library once a process and looks its functions up. Every call
that may touch the disk gives up the GIL; the compaction filter, in RocksDB's threads, needs none.
What the bytes mean, which options are set, who may call when: ``native_engine``. A ``Database``
owns every handle it made and frees each once, users before what they use, also when opening fails
half-way; the filter's state outlives it; nothing of a call (iterators, pinned values) does.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_RawCalloc, PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc
from cpython.tuple cimport PyTuple_GET_SIZE
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset
from posix.unistd cimport getpid

include "_rocksdb_api.pxi"
include "_rocksdb_objects.pxi"
include "_rocksdb_search.pxi"
include "_rocksdb_units.pxi"


@cython.no_gc_clear  # what is open uses the options and the filter until it is closed
cdef class Database:
    """An open database with any families, numbered as they are given, the first one ``default``.

    Its options are the database's too; units lie in it, and the compaction filter is at work there.
    Writes come from one thread at a time; everything else from any. No other thread may call during
    ``close``: the caller sees to that. A call behind it, also of a method that was entered before
    (a signal's handler has closed), raises ``ClosedError``; other failures raise ``Error``.
    """

    cdef P db, writes, write_options, read_options, flush_options, compact_options
    cdef P *families
    cdef int family_count
    cdef list options  # kept: the database refers to them
    cdef P idle[IDLE_ITERATORS]  # iterators over units that nobody uses; each sees all that was ever written
    cdef int idle_count, idle_uses
    cdef int opened_by  # process; a child of it lets everything be
    cdef int64_t changes  # an iterator that is older than the last one is out of date
    cdef readonly CompactionFilter filter
    cdef readonly int snapshots  # that have not been released
    cdef char *built  # memory for the next write of a job, see there
    cdef size_t built_room

    def __cinit__(self, bytes folder, list names, list options, bint read_only, bint filtered=True):
        cdef const char *path = folder
        cdef char *error = NULL
        cdef tuple held = tuple(names)  # their bytes are used while others run
        cdef bytes name
        cdef int at, count = len(held)
        cdef const char **named = <const char **>calloc(count, sizeof(char *))
        cdef P *handles = <P *>calloc(count, sizeof(P))
        self.families = <P *>calloc(count, sizeof(P))
        self.family_count, self.options = count, list(options)
        try:
            if len(self.options) != count:
                raise ValueError("a family has a name and options")
            if named == NULL or handles == NULL or self.families == NULL:
                raise MemoryError
            for at in range(count):
                name = held[at]
                named[at] = name
                handles[at] = (<Options?>self.options[at]).handle
            if filtered:
                self.filter = CompactionFilter()
                O.options_set_compaction_filter(handles[0], self.filter.handle)
            with nogil:
                if read_only:
                    self.db = C.open_for_read_only_column_families(
                        handles[0], path, count, named, handles, self.families, 0, &error)
                else:
                    self.db = C.open_column_families(
                        handles[0], path, count, named, handles, self.families, &error)
        finally:
            free(named)
            free(handles)
        _check(error)
        self.opened_by = getpid()
        self.writes = O.writebatch_create()
        self.write_options = O.writeoptions_create()
        O.writeoptions_disable_WAL(self.write_options, 1)
        self.read_options = O.readoptions_create()
        self.flush_options = O.flushoptions_create()  # waits
        self.compact_options = O.compactoptions_create()
        O.compactoptions_set_bottommost_level_compaction(self.compact_options, 2)  # force

    def __dealloc__(self):
        self.close()
        free(self.families)
        PyMem_RawFree(self.built)

    def close(self):
        """Stop compactions and release everything. A second call does nothing."""
        cdef P db = self.db
        cdef int at
        if db != NULL:
            if getpid() != self.opened_by:
                return
            self.let_go()
            self.db = NULL
            with nogil:
                C.disable_manual_compaction(db)
                C.cancel_all_background_work(db, 1)
                for at in range(self.family_count):
                    C.column_family_handle_destroy(self.families[at])
                C.close(db)
        if self.writes != NULL:
            O.writebatch_destroy(self.writes)
            O.writeoptions_destroy(self.write_options)
            O.readoptions_destroy(self.read_options)
            O.flushoptions_destroy(self.flush_options)
            O.compactoptions_destroy(self.compact_options)
            self.writes = NULL

    cdef int _check_open(self) except -1:
        if self.db == NULL:
            raise ClosedError("the database is closed")
        return 0

    cdef let_go(self):
        """Release the idle iterators, and with them what they keep from being deleted."""
        cdef P idle[IDLE_ITERATORS]
        cdef int at, count = self.idle_count
        memcpy(idle, self.idle, sizeof(idle))
        self.changes += 1
        self.idle_count = 0
        if count:
            with nogil:
                for at in range(count):
                    C.iter_destroy(idle[at])

    cdef P _iterator(self):
        """Return an iterator over the units as they are now; given back by ``_give_back``."""
        cdef P units
        if self.idle_count:
            self.idle_count -= 1
            return self.idle[self.idle_count]
        with nogil:
            units = C.create_iterator_cf(self.db, self.read_options, self.families[0])
        return units

    cdef void _give_back(self, P units, int64_t changes):
        """Keep an iterator for the next scan, if nothing was written since it was taken."""
        self.idle_uses += 1
        if self.idle_uses >= MAX_USES:
            self.idle_uses = 0
            self.let_go()
        if changes == self.changes and self.idle_count < IDLE_ITERATORS:
            self.idle[self.idle_count] = units
            self.idle_count += 1
        else:
            with nogil:
                C.iter_destroy(units)

    # ---- writing

    def write(self, const uint8_t[::1] prefixes, const int64_t[::1] starts,
              const int64_t[::1] prefix_index, const int64_t[::1] queue_offset,
              const uint8_t[:, ::1] units, list delete_ranges, list deletes, int puts_family,
              list puts):
        """Write one batch; prefix *i* is ``prefixes[starts[i]:starts[i + 1]]``, see ``EngineBatch``.

        Everything was checked: prefixes of at most ``MAX_PREFIX`` bytes, columns of one length.
        """
        cdef Py_ssize_t count = prefix_index.shape[0]
        cdef char *error = NULL
        cdef const char *base = <const char *>&prefixes[0] if prefixes.shape[0] else NULL
        cdef bytes start, end, key, value
        self._check_open()
        C.writebatch_clear(self.writes)
        for number, start, end in delete_ranges:
            C.writebatch_delete_range_cf(self.writes, self.families[<int>number], start, len(start),
                                         end, len(end))
        for number, key in deletes:
            C.writebatch_delete_cf(self.writes, self.families[<int>number], key, len(key))
        with nogil:
            _add_units(self.writes, self.families[0], base, starts, prefix_index, queue_offset,
                       units, count)
        for key, value in puts:
            C.writebatch_put_cf(self.writes, self.families[puts_family], key, len(key), value, len(value))
        with nogil:
            C.write(self.db, self.write_options, self.writes, &error)
            C.writebatch_clear(self.writes)
        self.let_go()
        _check(error)

    def flush_all(self):
        """Flush all families at once; return whether the library can, else nothing was done."""
        cdef char *error = NULL
        self._check_open()
        if F.flush_cfs == NULL:
            return False
        with nogil:
            F.flush_cfs(self.db, self.flush_options, self.families, self.family_count, &error)
        self.let_go()
        _check(error)
        return True

    def flush(self, int family):
        """Flush one family."""
        cdef char *error = NULL
        self._check_open()
        with nogil:
            C.flush_cf(self.db, self.flush_options, self.families[family], &error)
        self.let_go()
        _check(error)

    def set_options(self, int family, bytes name, bytes value):
        """Change an option of a family while the database is open."""
        cdef char *error = NULL
        cdef const char *names[1]
        cdef const char *values[1]
        self._check_open()
        names[0], values[0] = name, value
        with nogil:
            C.set_options_cf(self.db, self.families[family], 1, names, values, &error)
        _check(error)

    def compact(self, int family, bytes start, bytes end):
        """Compact a range of keys, everything without bounds; ends early after ``cancel``."""
        cdef const char *low = NULL
        cdef const char *high = NULL
        cdef size_t low_length = 0, high_length = 0
        self._check_open()
        if start is not None:
            low, low_length = start, len(start)
        if end is not None:
            high, high_length = end, len(end)
        with nogil:
            C.compact_range_cf_opt(self.db, self.families[family], self.compact_options, low,
                                   low_length, high, high_length)
        self.let_go()

    def cancel_compaction(self):
        """Make running manual compactions end soon and refuse further ones."""
        self._check_open()
        with nogil:
            C.disable_manual_compaction(self.db)

    def allow_compaction(self):
        """Allow manual compactions again."""
        self._check_open()
        with nogil:
            C.enable_manual_compaction(self.db)

    def ingest(self, int family, list paths):
        """Take SST files in; they are moved (linked) where the file system allows."""
        cdef char *error = NULL
        cdef tuple held = tuple(paths)  # their bytes are used while others run
        cdef bytes path
        cdef size_t count = len(held)
        cdef const char **names = <const char **>calloc(count, sizeof(char *))
        cdef P options = T.ingestexternalfileoptions_create()
        try:
            self._check_open()
            if names == NULL:
                raise MemoryError
            for at in range(count):
                path = held[at]
                names[at] = path
            T.ingestexternalfileoptions_set_move_files(options, 1)
            with nogil:
                T.ingest_external_file_cf(self.db, self.families[family], names, count, options,
                                          &error)
        finally:
            T.ingestexternalfileoptions_destroy(options)
            free(names)
            self.let_go()
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
        self._check_open()
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

    def search(self, bytes prefix, int64_t low, int64_t high, int64_t timestamp, bint upper,
               int64_t min_phy, int64_t max_phy):
        """Return where in [low, high) ``timestamp`` leads, by the same steps as ``search_offset``.

        A unit counts as stored at -1 if it is missing, too short, or its record lies outside the
        log, [min_phy, max_phy).
        """
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = _begin_key(key, prefix)
        cdef char *error = NULL
        cdef int64_t found, changes = self.changes
        cdef P units
        self._check_open()
        units = self._iterator()
        with nogil:
            found = _search(units, key, length, low, high, timestamp, upper, min_phy, max_phy,
                            &error)
            if error != NULL:
                C.iter_destroy(units)
        if error == NULL:
            self._give_back(units, changes)
        _check(error)
        return max(found - 1, low) if upper else found

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
        cdef size_t length = _begin_key(key, prefix)
        cdef int64_t taken, there, changes = self.changes
        cdef int stop
        cdef char *error = NULL
        cdef bint own = read_options != self.read_options  # a snapshot's
        cdef P units
        self._check_open()
        store_be64(key + length, queue_offset)
        units = NULL if own else self._iterator()
        with nogil:
            if own:
                units = C.create_iterator_cf(self.db, read_options, self.families[0])
            taken = _take_units(units, key, length, queue_offset, count, target, &stop, &there)
            if stop == NO_MORE:
                C.iter_get_error(units, &error)
            if own or error != NULL:
                C.iter_destroy(units)
        if not own and error == NULL:
            self._give_back(units, changes)
        _check(error)
        return taken, stop, there if stop >= HOLE else queue_offset + taken

    def neighbour(self, bytes prefix, int64_t queue_offset, bint forward):
        """Return ``(offset, value)`` of the unit at or next to an offset, ``None`` without one."""
        cdef char key[MAX_PREFIX + PLACE_BYTES]
        cdef size_t length = _begin_key(key, prefix), size = 0
        cdef const char *found
        cdef const char *unit
        cdef bint there
        cdef int64_t offset = 0
        cdef char *error = NULL
        cdef P units
        self._check_open()
        store_be64(key + length, queue_offset)
        with nogil:
            units = C.create_iterator_cf(self.db, self.read_options, self.families[0])
            there = _find_unit(units, key, length, forward)
            if not there:
                C.iter_get_error(units, &error)
        value = None  # no object of Python's is made beside an open iterator but bytes: any other
        if there:  # one may run the garbage collector, and a finalizer that closes
            found = C.iter_key(units, &size)
            offset = load_be64(found + length)
            unit = C.iter_value(units, &size)
            try:
                value = PyBytes_FromStringAndSize(unit, size)
            finally:
                C.iter_destroy(units)
        else:
            C.iter_destroy(units)
        _check(error)
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
        cdef P entries
        cdef list keys = [], values = []  # no pairs beside an open iterator, see neighbour
        self._check_open()
        with nogil:
            entries = C.create_iterator_cf(self.db, self.read_options, self.families[family])
            C.iter_seek(entries, low, low_length)
        try:
            while C.iter_valid(entries) and len(keys) < limit:
                found = C.iter_key(entries, &size)
                if not _below(found, size, high, end_length):
                    limit = len(keys)
                    break
                keys.append(PyBytes_FromStringAndSize(found, size))
                value = C.iter_value(entries, &size)
                values.append(PyBytes_FromStringAndSize(value, size))
                with nogil:
                    C.iter_next(entries)
            if len(keys) < limit:
                C.iter_get_error(entries, &error)
        finally:
            C.iter_destroy(entries)
        _check(error)
        return list(zip(keys, values))

    # ---- facts

    def property_value(self, int family, bytes name):
        """Return one of RocksDB's properties, ``None`` if it knows none of that name."""
        cdef char *text
        self._check_open()
        text = C.property_value_cf(self.db, self.families[family], name)
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
        self._check_open()
        low[0], high[0] = start, end
        low_length[0], high_length[0] = len(start), len(end)
        with nogil:
            C.approximate_sizes_cf(self.db, self.families[family], 1, low, low_length, high,
                                   high_length, size, &error)
        _check(error)
        return size[0]

    def live_files(self):
        """Return ``(name, size, level, entries, deletions, family)`` of each table file."""
        cdef P files
        self._check_open()
        files = C.livefiles(self.db)
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


include "_rocksdb_snapshot.pxi"
include "_rocksdb_states.pxi"
include "_rocksdb_built.pxi"
include "_rocksdb_appends.pxi"
