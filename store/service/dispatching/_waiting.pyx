# cython: language_level=3, auto_pickle=False
"""What waits for the queues and the index, and what is on its way there: fields in C.

``Pending`` and ``Dispatcher`` inherit from these and have the methods. What a field cannot hold is
refused with ``TypeError`` or ``OverflowError``, and what it held stays.
"""

from cqstore.store.core._fields cimport natural


cdef class Waiting:
    """Units and keys of what was appended, and its last record."""


cdef class InFlight:
    """The batch that is being dispatched, and how many units make the next one."""

    @property
    def full_at(self):
        """Waiting units at which a batch is dispatched."""
        return self.full

    @full_at.setter
    def full_at(self, given):
        self.full = natural(given, "full_at")
