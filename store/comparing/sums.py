"""Sums over units that are independent of order: two sides with equal units have equal sums.

A unit's hash covers its queue, its queue offset and all its fields.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.store.queue.bulk import UnitRows
from cqstore.store.queue.units import QueueKey

Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that the multiplication is reversible
_SHIFT = np.uint64(29)
FIELDS = ("phy_offset", "size", "tags_code", "store_timestamp")


class Columns(NamedTuple):
    """Units as columns in the machine's byte order, one row per unit."""

    phy_offset: Longs
    size: Longs
    tags_code: Longs
    store_timestamp: Longs

    def of(self, rows: "NDArray[np.bool_] | NDArray[np.int64] | slice") -> "Columns":
        """Return some of the rows."""
        return Columns(*(column[rows] for column in self))


def columns(rows: UnitRows) -> Columns:
    """Return the columns of packed rows."""
    return Columns(*(rows[name].astype(np.int64) for name in FIELDS))


@dataclass(slots=True)
class Sum:
    """Units, bytes of their records, and the XOR of their hashes."""

    units: int = 0
    bytes: int = 0
    checksum: int = 0

    def add(self, units: int, size: int, checksum: int) -> None:
        """Add a sum of other units."""
        self.units += units
        self.bytes += size
        self.checksum ^= checksum

    def add_units(self, units: Columns, hashes: Hashes) -> None:
        """Add units with their hashes, one row each."""
        self.add(len(hashes), int(units.size.sum()), int(np.bitwise_xor.reduce(hashes)))


def queue_seed(queue: QueueKey) -> int:
    """Return a 64-bit hash of a queue's name."""
    name = f"{queue.queue_id}/{queue.topic}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "big")


def unit_hashes(seeds: Hashes, queue_offset: Longs, units: Columns) -> Hashes:
    """Return the hash of each unit; ``seeds`` are those of its queue, one row per unit.

    An unknown store timestamp counts as ``NO_TIMESTAMP`` on both sides.
    """
    hashes = seeds.copy()
    for column in (queue_offset, *units):
        hashes ^= column.view(np.uint64)
        hashes *= _FACTOR
        hashes ^= hashes >> _SHIFT
    return hashes
