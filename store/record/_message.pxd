# The message of a put, for compiled code that reads its fields.

cdef class HostWire:
    cdef public object wire


cdef class Message:
    cdef public object topic, body, queue_id, properties, flag, sys_flag, born_timestamp
    cdef public object born_host, store_host, reconsume_times, prepared_transaction_offset
