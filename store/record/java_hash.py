"""Java's ``String.hashCode``, which hashes tags, index keys and lock stripes."""

from collections.abc import Callable

from cqstore.store.record import _properties

java_hash: Callable[[str], int] = _properties.java_hash
"""Return the hash of a text over its UTF-16 code units, a signed 32-bit number."""
