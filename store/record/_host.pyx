# cython: language_level=3
"""HostWire: the bytes of a host, in C."""


cdef class HostWire:
    """The bytes of a host; ``cqstore.store.record.host.Host`` checks their length."""
