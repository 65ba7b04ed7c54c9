# The message of a put, for compiled code that reads its fields.

cdef class Message:
    cdef public object topic, body, queue_id, properties, flag, sys_flag, born_timestamp
    cdef public object born_host, store_host, reconsume_times, prepared_transaction_offset
