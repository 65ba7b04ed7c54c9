# FileAppends: units at the ends of queues in files, a batch in one call. Part of `_native.pyx`.
#
# A queue is plain if its units follow its last one without a gap, in one run, and fit the open file
# that it ends in. Its units are written with one call of the system, while others run. What is not
# plain, and all from the first write on that the system did not take whole, is the twin's: of such
# a queue nothing has changed but bytes behind its end.

cdef enum:
    WAITS = 0  # no unit was met yet
    FOLLOWS = 1  # its units are one run
    IS_ODD = 2
    IS_PLAIN = 3
    IS_WRITTEN = 4


cdef struct Run:
    # The units of one queue; `at` counts bytes of the units of all, sorted by queue.
    Py_ssize_t at, size
    int64_t first_offset, next_offset, first_phy, last_phy, end_phy, position
    int fd, state


cdef class _Runs:
    """The units of a batch by queue, and the memory for them."""

    cdef Run *runs
    cdef char *data
    cdef Py_ssize_t queues

    def __cinit__(self, Py_ssize_t queues, Py_ssize_t units):
        self.queues = queues
        self.runs = <Run *> calloc(queues + 1, sizeof(Run))
        self.data = <char *> malloc(units * UNIT_OF_FILES + 1)
        if self.runs == NULL or self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.runs)
        free(self.data)

    cdef bint sort(
        self, const int32_t *queue, const int64_t *offset, const uint8_t *units, Py_ssize_t count,
        int64_t most_offset,
    ) noexcept nogil:
        """Group the units, in order; return whether all have possible queues and offsets."""
        cdef Py_ssize_t row, at, behind = 0
        cdef Run *run
        cdef int64_t phy
        for row in range(count):
            if not (0 <= queue[row] < self.queues and 0 <= offset[row] < most_offset):
                return False
            self.runs[queue[row]].size += UNIT_OF_FILES
        for at in range(self.queues):
            self.runs[at].at = behind
            behind += self.runs[at].size
            self.runs[at].size = 0
        for row in range(count):
            run, phy = &self.runs[queue[row]], load64(units + row * UNIT_BYTES)
            if run.state == WAITS:
                run.state, run.first_offset, run.first_phy = FOLLOWS, offset[row], phy
            elif offset[row] != run.next_offset:
                run.state = IS_ODD
            if not 0 <= phy <= INT64_MAX >> 1:
                run.state, phy = IS_ODD, 0
            run.next_offset, run.last_phy = offset[row] + 1, phy
            run.end_phy = phy + load32(units + row * UNIT_BYTES + AT_SIZE_OF_UNIT)
            memcpy(self.data + run.at + run.size, units + row * UNIT_BYTES, UNIT_OF_FILES)
            run.size += UNIT_OF_FILES
        return True

    cdef void write(self) noexcept nogil:
        """Write what is plain, until the system does not take something whole."""
        cdef Py_ssize_t at
        cdef Run *run
        for at in range(self.queues):
            run = &self.runs[at]
            if run.state == IS_PLAIN:
                if pwrite(run.fd, self.data + run.at, run.size, run.position) != run.size:
                    return
                run.state = IS_WRITTEN


cdef class FileAppends:
    """See ``FileConsumeQueueStore.put_batch``, the twin. Whoever writes the queues, nobody else.

    Between its last look at a queue and the change of its end nobody else changes that queue: a
    topic that is deleted meanwhile gets no units.
    """

    cdef dict _topics
    cdef object _files, _queue, _open_file, _used, _note
    cdef int64_t _file_size, _most_offset
    cdef Py_ssize_t _tail_path, _tail_position, _last_phy, _end_phy, _max_offset, _number

    def __init__(
        self, *, topics, files, used, note, classes, int64_t file_size, int64_t most_offset
    ):
        """Take what the queues are found by.

        ``topics`` has the queues by topic and queue id, ``files`` those open by path; ``used`` is
        told the path of a file that is used, ``note`` the paths that have changed and how far.
        """
        self._queue, self._open_file = classes
        self._topics, self._files, self._used, self._note = topics, files, used, note
        self._file_size, self._most_offset = file_size, most_offset
        self._tail_path = slot_of_class(self._queue, "_tail_path")
        self._tail_position = slot_of_class(self._queue, "_tail_position")
        self._last_phy = slot_of_class(self._queue, "last_phy")
        self._end_phy = slot_of_class(self._queue, "end_phy")
        self._max_offset = slot_of_class(self._queue, "max_offset")
        self._number = slot_of_class(self._open_file, "number")

    def append(self, batch, held_back):
        """Append what is plain; return which queues of the batch are left, a byte each.

        ``held_back`` are queues that are the twin's. Where all are left nothing has changed.
        """
        cdef list keys = batch.queues
        cdef BufferRef queue = BufferRef(batch.queue_index), offset = BufferRef(batch.queue_offset)
        cdef BufferRef units = BufferRef(batch.units)
        cdef Py_ssize_t count = units.buffer.len // UNIT_BYTES
        cdef _Runs runs = _Runs(len(keys), count)
        cdef bytearray left = bytearray(b"\1") * len(keys)
        cdef bint is_sound
        if (
            units.buffer.len != count * UNIT_BYTES or queue.buffer.len != count * sizeof(int32_t)
            or offset.buffer.len != count * sizeof(int64_t)
        ):
            return left
        with nogil:
            is_sound = runs.sort(
                <const int32_t *> queue.buffer.buf, <const int64_t *> offset.buffer.buf,
                <const uint8_t *> units.buffer.buf, count, self._most_offset,
            )
        if is_sound:
            self._append(runs, keys, held_back, left)
        return left

    cdef int _append(self, _Runs runs, list keys, held_back, bytearray left) except -1:
        cdef list queues = [], open_files = [], ends = [], paths = [], sizes = []
        cdef Py_ssize_t at, done = 0
        for at in range(runs.queues):
            if runs.runs[at].state == FOLLOWS and not (held_back and keys[at] in held_back):
                self._plan(&runs.runs[at], keys[at], queues, open_files, ends)
        if not queues or len(set(queues)) != len(queues):  # one that comes twice has two runs
            return 0
        with nogil:
            runs.write()
        for at in range(runs.queues):
            if runs.runs[at].state == IS_WRITTEN:
                paths.append(ends[done][4])  # that of now may be another one
                sizes.append(runs.runs[at].size)
                done += 1
        self._note(paths, sizes)  # behind the writes: a sync in between has not brought these bytes
        done = 0
        for at in range(runs.queues):
            if runs.runs[at].state == IS_WRITTEN:
                left[at] = 0
                self._move_end(queues[done], ends[done])
                done += 1
        return 0

    cdef int _plan(
        self, Run *run, key, list queues, list open_files, list ends
    ) except -1:
        """Plan the write of a queue if it is plain, with all that has to be made for it."""
        cdef PyObject *found
        cdef int64_t most = INT64_MAX, known = 0, number = 0
        topic, queue_id = key
        found = PyDict_GetItemWithError(self._topics, topic)
        if found == NULL or type(<object> found) is not dict:
            return 0
        queues_of_topic = <object> found  # held: its keys may be compared by anything
        found = PyDict_GetItemWithError(queues_of_topic, queue_id)
        if found == NULL or type(<object> found) is not self._queue:
            return 0
        queue = <object> found
        if not (
            whole_number(in_slot(found, self._max_offset), 0, most, &known)
            and known == run.first_offset
            and whole_number(in_slot(found, self._last_phy), INT64_MIN, most, &known)
            and known < run.first_phy
            and whole_number(in_slot(found, self._tail_position), 0, self._file_size, &run.position)
            and run.position + run.size <= self._file_size
        ):
            return 0
        found = in_slot(<PyObject *> queue, self._tail_path)
        if found == NULL or type(<object> found) is not str:
            return 0
        path = <object> found
        found = PyDict_GetItemWithError(self._files, path)
        if found == NULL or type(<object> found) is not self._open_file:
            return 0
        open_file = <object> found  # held while its number is in use
        if not whole_number(in_slot(found, self._number), 0, INT32_MAX, &number):
            return 0
        try:
            self._used(path)
        except KeyError:  # let go meanwhile
            return 0
        queues.append(queue)
        open_files.append(open_file)
        ends.append((run.position + run.size, run.last_phy, run.end_phy, run.next_offset, path))
        run.fd, run.state = <int> number, IS_PLAIN
        return 0

    cdef void _move_end(self, queue, tuple end) noexcept:
        """Take over what was written; what readers go by comes last."""
        set_slot(queue, self._tail_position, end[0])
        set_slot(queue, self._last_phy, end[1])
        set_slot(queue, self._end_phy, end[2])
        set_slot(queue, self._max_offset, end[3])
