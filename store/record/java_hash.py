"""Java's ``String.hashCode``: what tags, index keys and lock stripes are hashed with."""

from collections.abc import Callable

from cqstore.store.record import _properties

java_hash: Callable[[str], int] = _properties.java_hash
"""Return the hash of a text over its UTF-16 code units, a signed 32-bit number."""
