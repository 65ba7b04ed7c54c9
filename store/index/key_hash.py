"""The hash of an index key: of one key, and of a batch of keys.

The hash is Java's ``String.hashCode`` of topic, ``#`` and key without its sign.

Source: RocketMQ ``IndexFile.indexKeyHashMethod``.
"""

import numpy as np
from numpy.typing import NDArray

from store.core import CORE
from store.record.java_hash import java_hash

_BITS = 32
_SIGN = 1 << (_BITS - 1)


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which ``key`` of ``topic`` is indexed, in [0, 2**31)."""
    return _without_sign(java_hash(f"{topic}#{key}"))


def key_hashes(topics: list[str], keys: list[str]) -> NDArray[np.int64]:
    """Return ``key_hash`` of each pair; no key may be empty."""
    return np.frombuffer(CORE.key_hashes(topics, keys), np.int64)


def _without_sign(value: int) -> int:
    return 0 if value == -_SIGN else abs(value)
