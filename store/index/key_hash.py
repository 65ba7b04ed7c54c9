"""The hash of an index key: of one key, and of a batch of keys in numpy.

The hash is Java's ``String.hashCode`` of topic, ``#`` and key without its sign. Because that hash
is a polynomial, the topic's part is computed once and moved up by the length of the key.

Source: RocketMQ ``IndexFile.indexKeyHashMethod``.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from store.core import CORE
from store.record.bounded_cache import BoundedCache
from store.record.java_hash import java_hash

_BITS = 32
_MASK = (1 << _BITS) - 1
_SIGN = 1 << (_BITS - 1)


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which ``key`` of ``topic`` is indexed, in [0, 2**31)."""
    return _without_sign(java_hash(f"{topic}#{key}"))


def key_hashes(topics: list[str], keys: list[str]) -> NDArray[np.int64]:
    """Return ``key_hash`` of each pair; no key may be empty."""
    if CORE is not None:
        return np.frombuffer(CORE.key_hashes(topics, keys), np.int64)
    return _key_hashes(topics, keys)


def _key_hashes(topics: list[str], keys: list[str]) -> NDArray[np.int64]:
    """Do what the core does where it does not run."""
    if not all(map(str.isascii, keys)):
        pairs = zip(topics, keys, strict=True)
        return np.fromiter((key_hash(*pair) for pair in pairs), np.int64, len(keys))
    sizes = np.fromiter(map(len, keys), np.int64, len(keys))
    ends = np.cumsum(sizes)
    units = np.frombuffer("".join(keys).encode(), np.uint8)
    powers = _powers(1 << int(sizes.max()).bit_length())
    places = np.repeat(ends, sizes) - np.arange(1, len(units) + 1)
    sums = np.add.reduceat(units * powers[places], ends - sizes, dtype=np.uint32)
    prefixes = np.fromiter(map(_topic_hash, topics), np.uint32, len(topics))
    hashes = np.abs((prefixes * powers[sizes] + sums).view(np.int32).astype(np.int64))
    hashes[hashes == _SIGN] = 0
    return hashes


def _without_sign(value: int) -> int:
    return 0 if value == -_SIGN else abs(value)


def _topic_hash(topic: str) -> int:
    known = _topic_hashes.get(topic)
    if known is None:
        known = _topic_hashes.learn(topic, java_hash(topic + "#") & _MASK, len(topic))
    return known


_topic_hashes = BoundedCache[str, int](8 << 20)


@lru_cache(maxsize=8)
def _powers(count: int) -> NDArray[np.uint32]:
    """Return 31**0, 31**1, … modulo 2**32, ``count`` of them."""
    powers = np.full(count, 31, np.uint32)
    powers[0] = 1
    return np.multiply.accumulate(powers, dtype=np.uint32)
