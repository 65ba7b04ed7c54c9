# cython: language_level=3, auto_pickle=False
"""Records that wait for queues and index, and the batch in progress: fields in C.

``Pending`` and ``Dispatcher`` inherit from these classes and have the methods. A value that a field
cannot hold is refused with ``TypeError`` or ``OverflowError``, and the field keeps its old value.
"""

from cqstore.store.core._fields cimport natural


cdef class Waiting:
    """Units and keys of appended records, and the last record."""


cdef class InFlight:
    """The batch that is being dispatched, and the number of units of the next one."""

    @property
    def full_at(self):
        """Number of waiting units at which a batch is dispatched."""
        return self.full

    @full_at.setter
    def full_at(self, given):
        self.full = natural(given, "full_at")
