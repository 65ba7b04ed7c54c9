# cython: language_level=3, auto_pickle=False
"""The flags of a store's state that a put and a read check: C fields, and attributes in Python.

``RunningState`` and ``CriticalSection`` inherit from these classes and have the methods. A value
that is neither true nor false is refused with ``TypeError``.
"""

from cqstore.store.core._fields cimport truth


cdef class StateFlags:
    """Whether a store accepts reads and puts."""

    @property
    def closed(self):
        """Whether the store has been closed."""
        return self.is_closed

    @closed.setter
    def closed(self, given):
        self.is_closed = truth(given, "closed")

    @property
    def forked(self):
        """Whether this process is a child of the one that opened the store."""
        return self.is_forked

    @forked.setter
    def forked(self, given):
        self.is_forked = truth(given, "forked")

    @property
    def unwritable(self):
        """Whether puts are forbidden for any reason: the only flag that a put checks."""
        return self.is_unwritable

    @unwritable.setter
    def unwritable(self, given):
        self.is_unwritable = truth(given, "unwritable")


cdef class EnteredFlag:
    """Whether a section is in progress in which all steps are done, or the store fails."""

    @property
    def begun(self):
        """Whether it has begun, and not ended."""
        return self.is_begun

    @begun.setter
    def begun(self, given):
        self.is_begun = truth(given, "begun")
