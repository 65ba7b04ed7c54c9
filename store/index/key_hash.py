"""The hash of an index key; a batch of keys contains the hashes of its keys.

The hash is Java's ``String.hashCode`` of topic, ``#`` and key without its sign.

Source: RocketMQ ``IndexFile.indexKeyHashMethod``.
"""

from cqstore.store.record.java_hash import java_hash

_BITS = 32
_SIGN = 1 << (_BITS - 1)


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which ``key`` of ``topic`` is indexed, in [0, 2**31)."""
    value = java_hash(f"{topic}#{key}")
    return 0 if value == -_SIGN else abs(value)
