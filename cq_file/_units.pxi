# FileUnits: reads of queues in files. Part of `_native.pyx`.

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <sys/types.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* What is in memory, without waiting for the disk; -1 or fewer bytes for anything else. */
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
    """Fill ``to`` from a file; gives up the interpreter only where the disk is waited for."""
    cdef Py_ssize_t count = read_at_once(fd, to, size, position)
    if count != <Py_ssize_t> size:
        with nogil:
            count = pread(fd, to, size, position)
    return count == <Py_ssize_t> size


cdef enum:
    BLOCK_UNITS = 409  # as many as two pages have
    READS_UNTIL_MAPPED = 4  # a file that is read once needs no map


cdef class FileUnits:
    """Reads of queues in files that meet nothing odd; what is not plain is the twin's.

    ``files`` is a queue's files as they are now: ``starts``, ``generation``,
    ``first_offset``, ``max_offset``, ``known_min`` (generation, log minimum, first offset for it),
    ``known_path`` (start and path of the file that was read last).
    A reader that finds the same generation behind its read as before has read what it was
    promised. Any thread.
    """

    cdef PlainLog log
    cdef object opened, used, entries, table_class, files_class
    cdef int64_t file_size, most_offset
    cdef Py_ssize_t at_starts, at_generation, at_first_offset, at_max_offset  # of a queue's files
    cdef Py_ssize_t at_known_min, at_known_path
    cdef Py_ssize_t at_closed, at_simple  # of the table
    cdef object open_class
    cdef Py_ssize_t at_mapped, at_reads  # of an open file

    def __init__(self, log, opened, int64_t file_size, *, classes, int64_t most_offset):
        """``opened`` gives a file of ``file_size`` bytes, open, by its path (DescriptorCache).

        No queue has an offset of ``most_offset`` or above. ``classes`` are that of the table of
        queues, that of a queue's files, and that of an open file: all keep their fields in slots.
        """
        self.log, self.opened = PlainLog(log), opened.get
        self.file_size, self.most_offset = max(file_size, UNIT_OF_FILES), most_offset
        self.table_class, self.files_class, self.open_class = table_class, files_class, _ = classes
        self.at_mapped = slot_of_class(self.open_class, "mapped")
        self.at_reads = slot_of_class(self.open_class, "reads")
        self.at_starts = slot_of_class(files_class, "starts")
        self.at_generation = slot_of_class(files_class, "generation")
        self.at_first_offset = slot_of_class(files_class, "first_offset")
        self.at_max_offset = slot_of_class(files_class, "max_offset")
        self.at_known_min = slot_of_class(files_class, "known_min")
        self.at_known_path = slot_of_class(files_class, "known_path")
        self.at_closed = slot_of_class(table_class, "closed")
        self.at_simple = slot_of_class(table_class, "simple")
        if not isinstance(opened.entries, dict):
            raise TypeError("open files are kept in a dict")
        self.entries, self.used = opened.entries, opened.entries.move_to_end

    cdef object _open(self, files, int64_t start):
        """Return the descriptor of the file that starts there; ``None`` without one."""
        cdef list starts = <object> in_slot(<PyObject *> files, self.at_starts)
        cdef Py_ssize_t count = len(starts)
        cdef tuple known = <object> in_slot(<PyObject *> files, self.at_known_path)
        cdef PyObject *entry
        if not count or (<int64_t> starts[count - 1] != start and start not in starts):
            return None
        path = known[1] if <int64_t> known[0] == start else files.path_of(start)
        try:
            entry = PyDict_GetItemWithError(self.entries, path)  # of a subclass, as it is ordered
            if entry == NULL:
                return self.opened(path)
            descriptor = <object> entry
            self.used(path)
        except KeyError:  # let go of between the two lines, and held here
            pass
        except FileNotFoundError:  # the twin knows whether it may have gone
            return None
        return descriptor

    cdef bint _ends(
        self, files, int64_t generation, int64_t least, int64_t *low, int64_t *high
    ) except -1:
        """Find where the queue begins and ends now; False: nobody has looked yet.

        ``least``: where the log begins.
        """
        cdef tuple known
        high[0] = self._number(files, self.at_max_offset)
        if least <= 0:
            low[0] = self._number(files, self.at_first_offset)
        else:
            known = <object> in_slot(<PyObject *> files, self.at_known_min)
            if <int64_t> known[0] != generation or <int64_t> known[1] != least:
                return False
            low[0] = known[2]
        if low[0] > high[0]:
            low[0] = high[0]
        return True

    cdef bint _read(self, files, int64_t offset, int64_t count, uint8_t *to) except -1:
        """Read units, all of one file; False: they are not there, or not all of them."""
        cdef int64_t logic = offset * UNIT_OF_FILES
        cdef int64_t position = logic % self.file_size
        if position + count * UNIT_OF_FILES > self.file_size:
            return False
        descriptor = self._open(files, logic - position)  # held while its number is in use
        if type(descriptor) is not self.open_class:
            return False
        return self._read_file(descriptor, to, count * UNIT_OF_FILES, position)

    cdef bint _read_file(self, descriptor, uint8_t *to, int64_t size, int64_t position) except -1:
        """Read bytes of an open file: of pages that were read before from a map, if it has one."""
        cdef FileMap mapped = <object> in_slot(<PyObject *> descriptor, self.at_mapped)  # held
        cdef int64_t reads
        if mapped is not None and mapped.read_again(to, size, position):
            return True
        if not read_whole(descriptor.number, to, size, position):  # others run meanwhile
            return False
        if mapped is None:  # unless another thread has made one
            mapped = <object> in_slot(<PyObject *> descriptor, self.at_mapped)
        if mapped is not None:
            mapped.saw(size, position)
            return True
        reads = <object> in_slot(<PyObject *> descriptor, self.at_reads)
        if reads < READS_UNTIL_MAPPED:
            set_slot(descriptor, self.at_reads, reads + 1)
        else:
            set_slot(descriptor, self.at_mapped, FileMap(descriptor.number, self.file_size))
        return True

    cdef object _find(self, table, topic, queue_id):
        """Return the files that bear a name now, ``None`` if no simple queue does."""
        cdef dict simple, queues
        cdef PyObject *found
        if type(table) is not self.table_class:
            return None
        if in_slot(<PyObject *> table, self.at_closed) != Py_False:
            return None
        simple = <object> in_slot(<PyObject *> table, self.at_simple)
        queues = simple.get(topic)
        if queues is None:
            return None
        found = PyDict_GetItemWithError(queues, queue_id)
        if found == NULL or type(<object> found) is not self.files_class:
            return None
        return <object> found

    cdef int64_t _number(self, files, Py_ssize_t at) except? -2:
        """Return the number in a slot."""
        return <object> in_slot(<PyObject *> files, at)

    def plain_units(self, table, topic, queue_id, int64_t queue_offset, int64_t max_count):
        """Return minimum, maximum, units and the bytes of each; ``None``: it is not plain.

        A hole is among the units: nothing in it leads to a record.
        """
        cdef int64_t generation, low = 0, high = 0, count
        files = self._find(table, topic, queue_id)
        if files is None:
            return None
        generation = self._number(files, self.at_generation)
        if not self._ends(files, generation, self.log.least(), &low, &high):
            return None
        if not low <= queue_offset < high:
            if self._number(files, self.at_generation) != generation:
                return None
            return low, high, b"", 0
        count = min(max_count, high - queue_offset)
        if count < 1 or high > self.most_offset:
            return None
        data = PyBytes_FromStringAndSize(NULL, count * UNIT_OF_FILES)
        if not self._read(files, queue_offset, count, <uint8_t *> PyBytes_AS_STRING(data)):
            return None
        if self._number(files, self.at_generation) != generation:
            return None
        return low, high, data, UNIT_OF_FILES

    def search(self, table, topic, queue_id, timestamp, bint upper):
        """Return the offset that ``timestamp`` leads to; ``None``: it is not plain."""
        cdef int64_t generation, low = 0, high = 0, first, least, wanted, middle, at
        cdef int64_t block_start = 0, block_end = 0
        cdef uint8_t block[BLOCK_UNITS * UNIT_OF_FILES]
        cdef const uint8_t *unit
        cdef StoreTimes times
        cdef bint is_plain = True
        files = self._find(table, topic, queue_id)
        if files is None or not whole_number(<PyObject *> timestamp, 0, MAX_TIME, &wanted):
            return None
        generation = self._number(files, self.at_generation)
        least = self.log.least()
        if (
            not self._ends(files, generation, least, &low, &high)
            or high > self.most_offset or low < 0
        ):
            return None
        first = low
        times = StoreTimes.__new__(StoreTimes, self.log, least)
        while low < high:  # as the twin: units below low are before, units from high on are behind
            middle = (low + high) // 2
            if not block_start <= middle < block_end:
                block_start, block_end = low, high
                if high - low > BLOCK_UNITS or not self._in_one_file(low, high):
                    block_start, block_end = middle, middle + 1
                if not self._read(files, block_start, block_end - block_start, block):
                    return None
            if block_start <= low and high <= block_end:  # one of these two comes next
                times.ahead(load64(block + ((low + middle) // 2 - block_start) * UNIT_OF_FILES))
                if middle + 1 < high:
                    times.ahead(load64(
                        block + ((middle + 1 + high) // 2 - block_start) * UNIT_OF_FILES
                    ))
            unit = block + (middle - block_start) * UNIT_OF_FILES
            if load32(unit + AT_SIZE_OF_UNIT) <= 0 or load64(unit) < 0:
                # A hole, or the file was cut in this page.
                return None
            at = times.of(load64(unit), load32(unit + AT_SIZE_OF_UNIT), &is_plain)
            if not is_plain:
                return None
            if at < wanted or (upper and at == wanted):
                low = middle + 1
            else:
                high = middle
        if self._number(files, self.at_generation) != generation:
            return None
        return max(low - 1, first) if upper else low

    cdef bint _in_one_file(self, int64_t low, int64_t high) noexcept:
        cdef int64_t units = self.file_size // UNIT_OF_FILES
        return low // units == (high - 1) // units
