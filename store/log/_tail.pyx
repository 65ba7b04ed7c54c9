# cython: language_level=3, auto_pickle=False
"""The fields of a log that a put sets and every read needs: C fields, and attributes in Python.

The log's Python classes inherit from these classes and have the methods. Each field exists once, so
no copies can differ. Under the GIL each is read and set in one step. A value that a field cannot
hold is refused with ``TypeError`` or ``OverflowError``, and the field keeps its old value.
"""

from cqstore.store.core._fields cimport natural


cdef class FilePositions:
    """A file of the log: its start, its wrote position, and the target of writes."""

    @property
    def file_from_offset(self):
        """Phy offset at which the file begins."""
        return self.start

    @file_from_offset.setter
    def file_from_offset(self, given):
        self.start = natural(given, "file_from_offset")

    @property
    def wrote_position(self):
        """Position in the file where the next record is written."""
        return self.wrote

    @wrote_position.setter
    def wrote_position(self, given):
        self.wrote = natural(given, "wrote_position")


cdef class FilesByStart:
    """The files of a log, all of one size, by their start offsets, in order.

    The dict is replaced, never changed: readers iterate over it without a lock.
    """

    @property
    def file_size(self):
        """Bytes of each file."""
        return self.size

    @file_size.setter
    def file_size(self, given):
        self.size = natural(given, "file_size")


cdef class LogTail:
    """The end of a log: the offset of the next record, and the file for it."""

    @property
    def end(self):
        """Phy offset of the next record."""
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
