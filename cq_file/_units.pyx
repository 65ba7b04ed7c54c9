# cython: language_level=3, boundscheck=False, wraparound=False
"""FileUnits: reads of queues in files, and searches of them by time.

Irregular cases are left to the slow path in Python. No given size and no value on disk is trusted:
every read is bounded by the object that it reads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from posix.unistd cimport pread

from cqstore.cq_file._table cimport OpenFile, QueueEnds, SimpleQueues
from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._faults cimport log_faults_seen
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, UNIT_OF_FILES
from cqstore.store.core._maps cimport FileMap
from cqstore.store.core._record cimport whole_number
from cqstore.store.log._log cimport FastLog, StoreTimes
from cqstore.store.queue._time_search cimport (
    SampledTimes, TimeSearch, begin_search, compare_unit, next_unit, offset_found, times_for,
)

cdef int64_t MAX_TIME = <int64_t> 1 << 62  # ms; later timestamps take the slow path

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* Read from the page cache without waiting for the disk; else -1 or fewer bytes. */
    static inline ssize_t read_at_once(int fd, void *to, size_t size, off_t position) {
    #ifdef RWF_NOWAIT
        struct iovec part = {to, size};
        return preadv2(fd, &part, 1, position, RWF_NOWAIT);
    #else
        (void)fd; (void)to; (void)size; (void)position;
        return -1;
    #endif
    }
    """
    Py_ssize_t read_at_once(int fd, void *to, size_t size, int64_t position) noexcept nogil


cdef bint read_whole(int fd, uint8_t *to, size_t size, int64_t position) noexcept:
    """Fill ``to`` from a file; releases the interpreter's lock only to wait for the disk."""
    cdef Py_ssize_t count = read_at_once(fd, to, size, position)
    if count != <Py_ssize_t> size:
        with nogil:
            count = pread(fd, to, size, position)
    return count == <Py_ssize_t> size


cdef enum:
    BLOCK_UNITS = 409  # fit into two pages
    READS_UNTIL_MAPPED = 4  # a file that is read only once needs no map


cdef struct UnitBlock:
    # Units from `start` to `end`, as they are in a file.
    int64_t start, end
    uint8_t units[BLOCK_UNITS * UNIT_OF_FILES]


cdef inline int _fetch_next(
    TimeSearch search, const UnitBlock *block, StoreTimes times, int64_t stored
) except -1:
    """Prefetch the record that the search reads next if that of ``middle`` has time ``stored``."""
    compare_unit(&search, stored)
    if next_unit(&search):
        times.ahead(load64(block.units + (search.middle - block.start) * UNIT_OF_FILES))
    return 0


cdef class FileUnits:
    """Reads of queues in files, on the fast path.

    A read is valid if the generation is the same before and after it. Any thread.
    """

    cdef FastLog log
    cdef object opened, entries
    cdef int64_t file_size, max_units
    cdef bint keeps_times

    def __init__(self, log, opened, int64_t file_size, *, int64_t max_units):
        """``opened`` returns an open file of ``file_size`` bytes by its path (DescriptorCache).

        Queue offsets are below ``max_units``.
        """
        self.log, self.opened = FastLog(log), opened.get
        self.keeps_times = not opened.read_only  # else another process may change records
        self.file_size, self.max_units = max(file_size, UNIT_OF_FILES), max_units
        if not isinstance(opened.entries, dict):
            raise TypeError("opened.entries must be a dict")
        self.entries = opened.entries

    cdef OpenFile _open(self, QueueEnds files, int64_t start):
        """Return the open file that starts at ``start``, or ``None``."""
        cdef list starts = files.starts
        cdef Py_ssize_t count = len(starts) if starts is not None else 0
        cdef PyObject *entry
        cdef OpenFile file
        if not count or (<int64_t> starts[count - 1] != start and start not in starts):
            return None
        path = files.known_file
        if files.known_start != start or path is None:
            path = (<object> files).path_of(start)
        entry = PyDict_GetItemWithError(self.entries, path)  # works for the OrderedDict, a subclass
        if entry != NULL:
            found = <object> entry
        else:
            try:
                found = self.opened(path)
            except FileNotFoundError:  # the slow path decides whether this is an error
                return None
        if not isinstance(found, OpenFile):
            return None
        file = <OpenFile> found
        file.is_used = True
        files.known_start, files.known_file = start, file.path  # keep one object per path
        return file

    cdef bint _ends(
        self, QueueEnds files, int64_t generation, int64_t min_phy_offset,
        int64_t *low, int64_t *high,
    ) noexcept:
        """Find the queue's current first and end offset; False: the first is not cached yet.

        ``min_phy_offset``: the start of the log.
        """
        high[0] = files.high
        if min_phy_offset <= 0:
            low[0] = files.low
        elif files.min_generation != generation or files.min_log != min_phy_offset:
            return False
        else:
            low[0] = files.min_found
        if low[0] > high[0]:
            low[0] = high[0]
        return True

    cdef bint _read(self, QueueEnds files, int64_t offset, int64_t count, uint8_t *to) except -1:
        """Read units, all in one file; False: not all of them exist."""
        cdef int64_t logic = offset * UNIT_OF_FILES
        cdef int64_t position = logic % self.file_size
        cdef OpenFile file
        if position + count * UNIT_OF_FILES > self.file_size:
            return False
        file = self._open(files, logic - position)  # held while its number is in use
        if file is None:
            return False
        return self._read_file(file, to, count * UNIT_OF_FILES, position)

    cdef bint _read_file(self, OpenFile file, uint8_t *to, int64_t size, int64_t position) except -1:
        """Read bytes of an open file; pages that were read before are read from its map, if any."""
        cdef FileMap mapped = file.mapped  # held
        if mapped is not None and mapped.read_again(to, size, position):
            return True
        if not read_whole(file.number, to, size, position):  # other threads may run during this
            return False
        if mapped is None:  # unless another thread has made one
            mapped = file.mapped
        if mapped is not None:
            mapped.saw(size, position)
        elif file.read_count < READS_UNTIL_MAPPED:
            file.read_count += 1
        else:
            file.mapped = FileMap(file.number, self.file_size)
        return True

    cdef QueueEnds _find(self, table, topic, queue_id):
        """Return the current files of the simple queue of this name, or ``None``."""
        if not isinstance(table, SimpleQueues) or (<SimpleQueues> table).is_closed:
            return None
        found = (<SimpleQueues> table).named(topic, queue_id)
        return <QueueEnds> found if isinstance(found, QueueEnds) else None

    def fast_units(self, table, topic, queue_id, int64_t queue_offset, int64_t max_count):
        """Return minimum, maximum, units and their size; ``None``: use the slow path.

        Holes are included in the units as rows that point to no record.
        """
        cdef int64_t generation, low = 0, high = 0, count
        cdef QueueEnds files = self._find(table, topic, queue_id)
        if files is None:
            return None
        generation = files._generation
        if not self._ends(files, generation, self.log.min_phy_offset(), &low, &high):
            return None
        if not low <= queue_offset < high:
            if files._generation != generation:
                return None
            return low, high, b"", 0
        count = min(max_count, high - queue_offset)
        if count < 1 or high > self.max_units:
            return None
        data = PyBytes_FromStringAndSize(NULL, count * UNIT_OF_FILES)
        if not self._read(files, queue_offset, count, <uint8_t *> PyBytes_AS_STRING(data)):
            return None
        if files._generation != generation:
            return None
        return low, high, data, UNIT_OF_FILES

    def search(self, table, topic, queue_id, timestamp, bint upper):
        """Return the offset for ``timestamp``; ``None``: use the slow path."""
        cdef int64_t generation, low = 0, high = 0, min_phy_offset, wanted, stored
        cdef int64_t *sample
        cdef TimeSearch search
        cdef UnitBlock block
        cdef StoreTimes times = None
        cdef SampledTimes known = None
        cdef QueueEnds files = self._find(table, topic, queue_id)
        if files is None or not whole_number(<PyObject *> timestamp, 0, MAX_TIME, &wanted):
            return None
        generation = files._generation
        min_phy_offset = self.log.min_phy_offset()
        if (
            not self._ends(files, generation, min_phy_offset, &low, &high)
            or high > self.max_units or low < 0 or log_faults_seen()
        ):
            return None
        begin_search(&search, low, high, wanted, upper)
        if self.keeps_times:
            known = files.times = times_for(files.times, &search, generation, min_phy_offset)
        block.start = block.end = 0
        while next_unit(&search):
            sample = known.sample(search.middle) if known is not None else NULL
            if sample == NULL or sample[0] == -1:
                if times is None:
                    times = StoreTimes.__new__(StoreTimes, self.log, min_phy_offset)
                if not self._time_of(files, &search, &block, times, &stored):
                    return None
                if sample != NULL:
                    sample[0] = stored
            else:
                stored = sample[0]
            compare_unit(&search, stored)
        return offset_found(&search) if files._generation == generation else None

    cdef bint _time_of(
        self, QueueEnds files, const TimeSearch *search, UnitBlock *block, StoreTimes times,
        int64_t *stored,
    ) except -1:
        """Read the store time of the search's unit; False: use the slow path."""
        cdef const uint8_t *unit
        cdef int64_t low = search.low, middle = search.middle, high = search.high
        cdef bint is_ordinary = True
        if not block.start <= middle < block.end:
            block.start, block.end = low, high
            if high - low > BLOCK_UNITS or not self._in_one_file(low, high):
                block.start, block.end = middle, middle + 1
            if not self._read(files, block.start, block.end - block.start, block.units):
                return False
        if block.start <= low and high <= block.end:  # the next step reads one of these two
            _fetch_next(search[0], block, times, INT64_MIN)
            _fetch_next(search[0], block, times, INT64_MAX)
        unit = block.units + (middle - block.start) * UNIT_OF_FILES
        if load32(unit + AT_SIZE_OF_UNIT) <= 0 or load64(unit) < 0:
            return False  # a hole, or the file was truncated within this page
        stored[0] = times.of(load64(unit), load32(unit + AT_SIZE_OF_UNIT), &is_ordinary)
        return is_ordinary

    cdef bint _in_one_file(self, int64_t low, int64_t high) noexcept:
        cdef int64_t units = self.file_size // UNIT_OF_FILES
        return low // units == (high - 1) // units
