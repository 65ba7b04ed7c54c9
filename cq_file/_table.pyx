# cython: language_level=3, auto_pickle=False
"""State of file queues, shared by compiled code (C fields) and Python (attributes).

Python classes inherit from these and add methods. Each field exists once, so there are no copies to
keep consistent. Under the interpreter's lock each field is read and set in one step. An invalid
value is refused with ``TypeError`` or ``OverflowError``, and the field keeps its value.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from posix.unistd cimport close

from cqstore.store.core._fields cimport natural, truth, whole


cdef class OpenFile:
    """An open queue file, closed with its last reference; see ``cqstore.store.files.Descriptor``.

    ``number`` is the descriptor, ``path`` its key in the cache, ``mapped`` the memory map that
    reads have created.
    """

    def __cinit__(self, int number, str path not None):
        if number < 0:
            raise ValueError(f"invalid file descriptor {number}")
        self.number, self.path, self.is_open = number, path, True

    def __dealloc__(self):
        cdef int number = self.number
        if self.is_open:
            with nogil:  # closing a removed file frees its blocks
                close(number)

    @property
    def used(self):
        """Whether it was used since the cache last checked it, see ``DescriptorCache``."""
        return self.is_used

    @used.setter
    def used(self, given):
        self.is_used = truth(given, "used")

    @property
    def reads(self):
        """Number of reads before it was mapped."""
        return self.read_count

    @reads.setter
    def reads(self, given):
        self.read_count = natural(given, "reads")


cdef class FileRow:
    """The files of one queue: its topic and queue id, their starts, and shared settings.

    The list of ``starts`` is replaced, never changed, so a reader may keep one.
    """

    @property
    def generation(self):
        """Increases before bytes that readers may use are changed or removed."""
        return self._generation

    @generation.setter
    def generation(self, given):
        self._generation = natural(given, "generation")


cdef class QueueEnds(FileRow):
    """Start and end of the units of a queue, and the file of the next unit."""

    @property
    def first_offset(self):
        """Queue offset of the first unit, or the end if there is none."""
        return self.low

    @first_offset.setter
    def first_offset(self, given):
        self.low = natural(given, "first_offset")

    @property
    def max_offset(self):
        """Queue offset after the last unit, which readers check."""
        return self.high

    @max_offset.setter
    def max_offset(self, given):
        self.high = natural(given, "max_offset")

    @property
    def last_phy(self):
        """Phy offset of the last unit's record, negative without units."""
        return self.last_record

    @last_phy.setter
    def last_phy(self, given):
        self.last_record = whole(given, "last_phy")

    @property
    def end_phy(self):
        """End of the last unit's record."""
        return self.last_record_end

    @end_phy.setter
    def end_phy(self, given):
        self.last_record_end = whole(given, "end_phy")

    @property
    def _unproven(self):
        """Whether the last unit may be torn."""
        return self.is_unproven

    @_unproven.setter
    def _unproven(self, given):
        self.is_unproven = truth(given, "_unproven")

    @property
    def _tail_path(self):
        """Path of the file for the next unit, or ``None`` if unknown or missing."""
        return self.tail

    @_tail_path.setter
    def _tail_path(self, given):
        self.tail = given

    @property
    def _tail_position(self):
        """Position of the next unit in the file ``_tail_path``."""
        return self.tail_at

    @_tail_position.setter
    def _tail_position(self, given):
        self.tail_at = natural(given, "_tail_position")

    @property
    def known_min(self):
        """Generation, minimum of the log, and the first offset that was found for both."""
        return self.min_generation, self.min_log, self.min_found

    @known_min.setter
    def known_min(self, given):
        generation, log, found = given
        cdef int64_t of_generation = whole(generation, "known_min")
        cdef int64_t of_log = whole(log, "known_min"), offset = whole(found, "known_min")
        self.min_generation, self.min_log, self.min_found = of_generation, of_log, offset

    @property
    def known_path(self):
        """Start and path of the file that was read last."""
        return self.known_start, self.known_file

    @known_path.setter
    def known_path(self, given):
        start, path = given
        cdef int64_t known = whole(start, "known_path")
        cdef str file = path
        self.known_start, self.known_file = known, file


cdef class SimpleQueues:
    """The simple queues, by topic and queue id, and whether they were closed.

    ``fast`` is the compiled reader, set when the queues are loaded.
    """

    @property
    def closed(self):
        """Whether the queues are closed."""
        return self.is_closed

    @closed.setter
    def closed(self, given):
        self.is_closed = truth(given, "closed")

    cdef object named(self, topic, queue_id):
        """Return the current simple queue of this name, or ``None``."""
        cdef PyObject *found
        cdef dict queues = self.simple
        if queues is None:
            return None
        found = PyDict_GetItemWithError(queues, topic)
        if found == NULL or type(<object> found) is not dict:
            return None
        queues = <dict> <object> found  # held, as comparing its keys may run any code
        found = PyDict_GetItemWithError(queues, queue_id)
        return None if found == NULL else <object> found

    cdef object found(self, topic, queue_id):
        """Return the current simple or batch queue of this name, or ``None``."""
        if self.is_closed:
            self.check_open()
        queue = self.named(topic, queue_id)
        if queue is None:
            queue = self.find_batch(topic, queue_id)
            if queue is None and self.is_closed:
                self.check_open()  # a close removes the queues
        return queue

    def find(self, topic, queue_id):
        """Return the current files of the queue of this name, or ``None``.

        Raises:
            StoreClosedError: the store is closed.
        """
        return self.found(topic, queue_id)

    def fast_units(self, topic, queue_id, queue_offset, max_count):
        """Read the files of a simple queue on the fast path, see ``FastReads``."""
        if self.fast is None:
            return None
        return self.fast.fast_units(self, topic, queue_id, queue_offset, max_count)

    def search(self, topic, queue_id, timestamp, upper):
        """Search a simple queue by time on the fast path, see ``FastReads``."""
        return None if self.fast is None else self.fast.search(
            self, topic, queue_id, timestamp, upper
        )

    def max_offset(self, topic, queue_id):
        """Return the offset after the last unit (batch queue: last message); 0: no queue.

        Raises:
            StoreClosedError: the store is closed.
        """
        queue = self.found(topic, queue_id)
        if isinstance(queue, QueueEnds):
            return (<QueueEnds> queue).high
        return 0 if queue is None else queue.max_offset
