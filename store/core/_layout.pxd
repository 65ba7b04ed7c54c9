# Positions of fields and lengths of fixed parts, in bytes: the only such numbers in compiled code.
# `tests/meta/test_compiled_layouts.py` compares each with its layout in Python, by name.

cdef enum:
    # a record of the log
    HEAD_BYTES = 48
    HOST_V4 = 8
    HOST_V6 = 20
    STAMP_BYTES = 8
    TAIL_BYTES = 16
    FIXED_BYTES = 88  # of a record with two IPv4 hosts: all but body, topic and properties
    MIN_RECORD = 91
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    BLANK_BYTES = 8  # the space that each record leaves free after it in its file
    STAMP_SPAN = 76  # bytes up to the end of any record's store time
    # its head, from its start
    AT_MAGIC = 4
    AT_CRC = 8
    AT_QUEUE_ID = 12
    AT_FLAG = 16
    AT_QUEUE_OFFSET = 20
    AT_PHY_OFFSET = 28
    AT_SYS_FLAG = 36
    AT_BORN = 40
    # further fields of a record with two IPv4 hosts
    AT_STAMP_V4 = 56
    AT_BODY_SIZE_V4 = 84
    # its tail, from the tail's start
    AT_PREPARED_OF_TAIL = 4
    AT_BODY_SIZE_OF_TAIL = 12
    # its last property, if records have a checksum of their own
    CRC_PROPERTY_BYTES = 20
    CRC_DIGITS = 10
    # the head of a message in a client batch
    BATCHED_BYTES = 20
    AT_FLAG_OF_BATCHED = 12
    AT_BODY_SIZE_OF_BATCHED = 16
    # a unit of a queue; a queue file has its first bytes
    UNIT_BYTES = 28
    UNIT_OF_FILES = 20
    AT_SIZE_OF_UNIT = 8
    AT_TAGS_CODE_OF_UNIT = 12
    # an index file
    INDEX_HEADER = 40
    INDEX_SLOT = 4
    INDEX_ENTRY = 20
    AT_INDEX_SLOTS_USED = 32
    AT_INDEX_COUNT = 36
    AT_PHY_OF_ENTRY = 4
    AT_TIME_OF_ENTRY = 12
    AT_PREVIOUS_OF_ENTRY = 16
    # bits of a record's flag
    COMPRESSED = 0x1
    PREPARED = 0x4
    ROLLBACK = 0xC
    TRANSACTION = 0xC
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    INNER_BATCH = 0x80
    PASSED_OVER = 0x40000000
    # and the limits of length fields
    MAX_PROPERTIES = 0x7FFF
    MAX_V1_TOPIC = 127
