"""Unique keys for messages whose producer has set none.

They consist of an address, the process, a class loader, the milliseconds since the start of the
month, and a counter.

Source: RocketMQ ``MessageClientIDSetter.createUniqID``.
"""

import os
import secrets
import time
from itertools import count

_ADDRESS = bytes([127, 0, 0, 1])
_LOADER_BYTES = 4
_COUNTER = count()
_SHORT, _INT = 1 << 16, 1 << 32
_prefixes: dict[int, str] = {}


def new_unique_key() -> str:
    """Return a key of 32 hexadecimal digits; tools read its time."""
    now = time.time()
    month = time.localtime(now)
    start = time.mktime((month.tm_year, month.tm_mon, 1, 0, 0, 0, 0, 0, -1))
    milliseconds = int((now - start) * 1000) % _INT
    return f"{_prefix()}{milliseconds:08X}{next(_COUNTER) % _SHORT:04X}"


def _prefix() -> str:
    """Return the part that no other process uses, also after a fork."""
    pid = os.getpid()
    if pid not in _prefixes:
        _prefixes.clear()
        process = (pid % _SHORT).to_bytes(2, "big")
        _prefixes[pid] = (_ADDRESS + process + secrets.token_bytes(_LOADER_BYTES)).hex().upper()
    return _prefixes[pid]
