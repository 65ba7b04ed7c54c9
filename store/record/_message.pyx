# cython: language_level=3, boundscheck=False, wraparound=False
"""Message: a message to put, with its fields in C for the put."""

from dataclasses import field, make_dataclass

cimport cython

from cqstore.store.record.host import LOOPBACK, Host

cdef object _not_given = []  # the default: no argument is this list
cdef object _described = make_dataclass("Message", [  # for `replace`, `fields` and `asdict`
    ("topic", str), ("body", bytes), ("queue_id", int, 0),
    ("properties", dict[str, str], field(default_factory=dict)), ("flag", int, 0),
    ("sys_flag", int, 0), ("born_timestamp", int, 0), ("born_host", Host, LOOPBACK),
    ("store_host", Host, LOOPBACK), ("reconsume_times", int, 0),
    ("prepared_transaction_offset", int, 0),
])


@cython.freelist(32)
cdef class Message:
    """Message(topic, body, queue_id=0, properties={}, flag=0, sys_flag=0, born_timestamp=0, born_host=..., store_host=..., reconsume_times=0, prepared_transaction_offset=0)
--

A message to be put.

``body`` is stored as it is (compress it first and set ``sys_flag``); timestamps are ms since
the epoch, ``born_timestamp`` 0 means now, and hosts are 127.0.0.1:0 unless given. Tags, keys
and the like are ``properties``: ``{"TAGS": "A", "KEYS": "k1 k2"}``; no name and no value may be
empty. What does not fit is refused by the put, before a byte is written.
"""

    __match_args__ = _described.__match_args__
    __hash__ = None
    __dataclass_fields__ = _described.__dataclass_fields__

    def __init__(
        self, topic=_not_given, body=_not_given, queue_id=0, properties=_not_given, flag=0, sys_flag=0,
        born_timestamp=0, born_host=LOOPBACK, store_host=LOOPBACK, reconsume_times=0,
        prepared_transaction_offset=0,
    ):
        if topic is _not_given or body is _not_given:
            lacking = "topic and body" if topic is _not_given and body is _not_given else (
                "topic" if topic is _not_given else "body"
            )
            raise TypeError(
                f"Message() is missing {lacking}; expected Message(topic, body, queue_id=0, …)"
            )
        self.topic, self.body, self.queue_id = topic, body, queue_id
        self.properties = {} if properties is _not_given else properties
        self.flag, self.sys_flag, self.born_timestamp = flag, sys_flag, born_timestamp
        self.born_host, self.store_host = born_host, store_host
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset

    def _fields(self):
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return self._fields() == other._fields()

    def __repr__(self):
        fields = ", ".join([f"{name}={getattr(self, name)!r}" for name in self.__match_args__])
        return f"{type(self).__qualname__}({fields})"

    def __reduce__(self):
        return type(self), self._fields()
