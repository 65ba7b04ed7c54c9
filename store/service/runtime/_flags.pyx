# cython: language_level=3, auto_pickle=False
"""What a put and a read ask of a store's state: flags in C, and attributes to Python.

``RunningState`` and ``CriticalSection`` inherit from these and have the methods. What is neither true nor
false is refused with ``TypeError``.
"""

from cqstore.store.core._fields cimport truth


cdef class StateFlags:
    """Whether a store is there for reads and for puts."""

    @property
    def closed(self):
        """Whether it has been closed."""
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
        """Whether anything forbids a put: all that a put looks at."""
        return self.is_unwritable

    @unwritable.setter
    def unwritable(self, given):
        self.is_unwritable = truth(given, "unwritable")


cdef class EnteredFlag:
    """Whether steps are under way of which all are done, or the store fails."""

    @property
    def begun(self):
        """Whether they have begun, and not ended."""
        return self.is_begun

    @begun.setter
    def begun(self, given):
        self.is_begun = truth(given, "begun")
