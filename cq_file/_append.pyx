# cython: language_level=3, boundscheck=False, wraparound=False
"""FileAppends: appends a batch of units to queues in files, in one call.

A queue takes the fast path if its units follow its last one without a gap, in one run, and fit into
the open file at its end. Its units are written by one system call without the interpreter's lock.
All other queues take the slow path, and so do all queues from the first incomplete write on; in
such a queue only bytes after its end have changed. No given size is trusted: every read is bounded
by the object that it reads.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy
from posix.unistd cimport pwrite

from cqstore.cq_file._table cimport OpenFile, QueueEnds
from cqstore.store.core._buffer cimport BufferRef
from cqstore.store.core._bytes cimport load32, load64
from cqstore.store.core._layout cimport AT_SIZE_OF_UNIT, UNIT_BYTES, UNIT_OF_FILES

cdef enum:
    WAITS = 0  # no unit was found yet
    FOLLOWS = 1  # its units are one run
    IS_ODD = 2
    IS_PLANNED = 3
    IS_WRITTEN = 4


cdef int64_t _batches = 0  # of this process


cdef struct Run:
    # The units of one queue; `at` is a byte offset into the units of all queues, sorted by queue.
    Py_ssize_t at, size
    int64_t first_offset, next_offset, first_phy, last_phy, end_phy, position
    Py_ssize_t number  # index in the list of planned queues
    int fd, state


cdef class _Runs:
    """The units of a batch by queue, their memory, and references held until they are written."""

    cdef Run *runs
    cdef char *data
    cdef Py_ssize_t count
    cdef list queues, open_files, paths  # of the planned writes
    cdef int64_t batch
    cdef bint has_twice  # a queue listed twice in the batch has two runs

    def __cinit__(self, Py_ssize_t count, Py_ssize_t units):
        global _batches
        _batches += 1
        self.batch, self.count = _batches, count
        self.queues, self.open_files, self.paths = [], [], []
        self.runs = <Run *> calloc(count + 1, sizeof(Run))
        self.data = <char *> malloc(units * UNIT_OF_FILES + 1)
        if self.runs == NULL or self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.runs)
        free(self.data)

    cdef bint sort(
        self, const int32_t *queue, const int64_t *offset, const uint8_t *units, Py_ssize_t count,
        int64_t max_units,
    ) noexcept nogil:
        """Group the units, in order; return whether all queues and offsets are in range."""
        cdef Py_ssize_t row, at, behind = 0
        cdef Run *run
        cdef int64_t phy
        for row in range(count):
            if not (0 <= queue[row] < self.count and 0 <= offset[row] < max_units):
                return False
            self.runs[queue[row]].size += UNIT_OF_FILES
        for at in range(self.count):
            self.runs[at].at = behind
            behind += self.runs[at].size
            self.runs[at].size = 0
        for row in range(count):
            run, phy = &self.runs[queue[row]], load64(units + row * UNIT_BYTES)
            if run.state == WAITS:
                run.state, run.first_offset, run.first_phy = FOLLOWS, offset[row], phy
            elif offset[row] != run.next_offset or phy <= run.last_phy:
                run.state = IS_ODD
            if not 0 <= phy <= INT64_MAX >> 1:
                run.state, phy = IS_ODD, 0
            run.next_offset, run.last_phy = offset[row] + 1, phy
            run.end_phy = phy + load32(units + row * UNIT_BYTES + AT_SIZE_OF_UNIT)
            memcpy(self.data + run.at + run.size, units + row * UNIT_BYTES, UNIT_OF_FILES)
            run.size += UNIT_OF_FILES
        return True

    cdef int plan(self, Run *run, QueueEnds queue, OpenFile file) except -1:
        """Plan to write the units of a queue to its open file."""
        self.queues.append(queue)
        self.open_files.append(file)
        self.paths.append(queue.tail)
        run.number, run.fd, run.position = len(self.queues) - 1, file.number, queue.tail_at
        run.state, queue.batch = IS_PLANNED, self.batch
        return 0

    cdef void write(self) noexcept nogil:
        """Write the planned units, until a write is incomplete."""
        cdef Py_ssize_t at
        cdef Run *run
        for at in range(self.count):
            run = &self.runs[at]
            if run.state == IS_PLANNED:
                if pwrite(run.fd, self.data + run.at, run.size, run.position) != run.size:
                    return
                run.state = IS_WRITTEN


cdef class FileAppends:
    """Fast path of ``FileConsumeQueueStore.put_batch``. Used by the thread that writes the queues.

    Between the last check of a queue and the change of its end, no other thread changes that queue:
    a topic that is deleted in the meantime gets no units.
    """

    cdef dict _topics
    cdef object _files, _note
    cdef int64_t _file_size, _max_units

    def __init__(self, *, topics, files, note, int64_t file_size, int64_t max_units):
        """Set how queues are found.

        ``topics`` has the queues by topic and queue id, ``files`` the open files by path; ``note``
        is called with the changed paths and the number of changed bytes of each.
        """
        self._topics, self._files, self._note = topics, files, note
        self._file_size, self._max_units = file_size, max_units

    def append(self, batch, held_back):
        """Append to ordinary queues; return a byte for each queue, 1 if it was left out.

        ``held_back`` are queues for the slow path. If all queues are left out, nothing has changed.
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
                <const uint8_t *> units.buffer.buf, count, self._max_units,
            )
        if is_sound:
            self._append(runs, keys, held_back, left)
        return left

    cdef int _append(self, _Runs runs, list keys, held_back, bytearray left) except -1:
        cdef list paths = [], sizes = []
        cdef Py_ssize_t at
        cdef Run *run
        for at in range(runs.count):
            if runs.runs[at].state == FOLLOWS and not (held_back and keys[at] in held_back):
                self._plan(runs, &runs.runs[at], keys[at])
        if not runs.queues or runs.has_twice:
            return 0
        with nogil:
            runs.write()
        for at in range(runs.count):
            run = &runs.runs[at]
            if run.state == IS_WRITTEN:
                paths.append(runs.paths[run.number])  # the queue's current path may differ
                sizes.append(run.size)
        self._note(paths, sizes)  # after the writes: a sync in between did not include these bytes
        for at in range(runs.count):
            run = &runs.runs[at]
            if run.state == IS_WRITTEN:
                left[at] = 0
                move_end(<QueueEnds> runs.queues[run.number], run)
        return 0

    cdef int _plan(self, _Runs runs, Run *run, key) except -1:
        """Plan the write of a queue if it is ordinary, and hold references that the write needs."""
        cdef PyObject *found
        cdef QueueEnds queue
        cdef OpenFile file
        cdef dict queues
        if not isinstance(key, tuple) or len(<tuple> key) != 2:
            return 0
        topic, queue_id = (<tuple> key)[0], (<tuple> key)[1]
        found = PyDict_GetItemWithError(self._topics, topic)
        if found == NULL or type(<object> found) is not dict:
            return 0
        queues = <dict> <object> found  # held, as comparing its keys may run any code
        found = PyDict_GetItemWithError(queues, queue_id)
        if found == NULL or not isinstance(<object> found, QueueEnds):
            return 0
        queue = <QueueEnds> found
        if not (
            queue.high == run.first_offset and queue.last_record < run.first_phy
            and queue.tail is not None and queue.tail_at <= self._file_size - run.size
        ):
            return 0
        found = PyDict_GetItemWithError(self._files, queue.tail)
        if found == NULL or not isinstance(<object> found, OpenFile):
            return 0
        file = <OpenFile> found  # held while its number is in use
        if queue.batch == runs.batch:
            runs.has_twice = True
            return 0
        file.is_used, queue.tail = True, file.path  # keep one object per path
        return runs.plan(run, queue, file)


cdef inline void move_end(QueueEnds queue, const Run *run) noexcept:
    """Publish written units; the values that readers check are set last."""
    queue.tail_at = run.position + run.size
    queue.last_record, queue.last_record_end = run.last_phy, run.end_phy
    queue.high = run.next_offset


def have_topics(dict topics not None, list keys not None):
    """Return whether the topic of each key is among ``topics``."""
    cdef object before = None
    for key in keys:
        if not isinstance(key, tuple) or len(<tuple> key) != 2:
            return False
        topic = (<tuple> key)[0]
        if topic is not before and topic not in topics:
            return False
        before = topic
    return True


def add_sizes(dict sizes not None, list names not None, list more not None):
    """Add ``more`` to the sizes of ``names``, in one step."""
    cdef Py_ssize_t at
    cdef PyObject *before
    if len(names) != len(more):
        raise ValueError("the numbers of names and sizes differ")
    for at in range(len(names)):
        before = PyDict_GetItemWithError(sizes, names[at])
        sizes[names[at]] = more[at] if before == NULL else <object> before + more[at]
