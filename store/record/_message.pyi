from dataclasses import dataclass, field

from cqstore.store.record.host import LOOPBACK, Host

@dataclass
class Message:
    """A message to be put.

    ``body`` is stored as it is (compress it first and set ``sys_flag``); timestamps are ms since
    the epoch, ``born_timestamp`` 0 means now, and hosts are 127.0.0.1:0 unless given. Tags, keys
    and the like are ``properties``: ``{"TAGS": "A", "KEYS": "k1 k2"}``; no name and no value may be
    empty. What does not fit is refused by the put, before a byte is written.
    """

    topic: str
    body: bytes
    queue_id: int = 0
    properties: dict[str, str] = field(default_factory=dict)
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: Host = LOOPBACK
    store_host: Host = LOOPBACK
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
