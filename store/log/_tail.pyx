# cython: language_level=3, auto_pickle=False
"""What of a log a put sets and every read asks for: fields in C, and attributes to Python.

Python's classes of the log inherit from these and have the methods. Of each field there is one, so
nothing has to be kept alike. Under the interpreter's lock each is read and set in one step. What a
field cannot hold is refused with ``TypeError`` or ``OverflowError``, and what it held stays.
"""

from cqstore.store.core._fields cimport natural


cdef class FilePositions:
    """A file of the log: where it starts, how far it is written, and where that is written to."""

    @property
    def file_from_offset(self):
        """Where the file starts in the log."""
        return self.start

    @file_from_offset.setter
    def file_from_offset(self, given):
        self.start = natural(given, "file_from_offset")

    @property
    def wrote_position(self):
        """Where the next record goes in the file."""
        return self.wrote

    @wrote_position.setter
    def wrote_position(self, given):
        self.wrote = natural(given, "wrote_position")


cdef class FilesByStart:
    """The files of a log, all of one size, by where they start, in order.

    The dict is replaced, never changed: readers walk it without a lock.
    """

    @property
    def file_size(self):
        """Bytes of each file."""
        return self.size

    @file_size.setter
    def file_size(self, given):
        self.size = natural(given, "file_size")


cdef class LogTail:
    """The end of a log: where the next record goes, and the file that takes it."""

    @property
    def end(self):
        """Where the next record goes."""
        return self.at

    @end.setter
    def end(self, given):
        self.at = natural(given, "end")

    @property
    def appended_records(self):
        """Records appended since the log was opened."""
        return self.appended

    @appended_records.setter
    def appended_records(self, given):
        self.appended = natural(given, "appended_records")
