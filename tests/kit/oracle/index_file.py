"""An index file key by key, by ``docs/format.md``: what the compiled writer is compared with."""

import struct
from typing import NamedTuple

HEADER, SLOT, ENTRY = struct.Struct(">qqqqii"), struct.Struct(">i"), struct.Struct(">iqii")
MAX_INT = 0x7FFFFFFF


class Key(NamedTuple):
    """One key of a record."""

    key_hash: int
    phy_offset: int
    store_timestamp: int


class OracleFile:
    """The bytes of one index file."""

    def __init__(self, slots: int, entries: int, before: "OracleFile | None" = None) -> None:
        self.slots, self.entries = slots, entries
        self.data = bytearray(HEADER.size + SLOT.size * slots + ENTRY.size * entries)
        self.next_index = 1
        self.header = [0, 0, 0, 0, 0, 0]
        if before is not None:
            _, end_time, _, end_phy, *_ = before.header
            self.header = [end_time, end_time, end_phy, end_phy, 0, 0]

    @property
    def is_full(self) -> bool:
        return self.next_index >= self.entries

    def put(self, key: Key) -> None:
        """Add one key, and count it in the header."""
        diff = seconds(key.store_timestamp, self.header[0])
        if self.next_index == 1:
            self.header[0], self.header[2] = key.store_timestamp, key.phy_offset
        self.header[1], self.header[3] = key.store_timestamp, key.phy_offset
        self.header[4] += self.link(key, diff)
        self.header[5] = self.next_index
        HEADER.pack_into(self.data, 0, *self.header)

    def link(self, key: Key, diff: int) -> bool:
        """Write entry and slot of one key; return whether its slot was empty."""
        at = HEADER.size + SLOT.size * (key.key_hash % self.slots)
        (previous,) = SLOT.unpack_from(self.data, at)
        place = HEADER.size + SLOT.size * self.slots + ENTRY.size * self.next_index
        ENTRY.pack_into(self.data, place, key.key_hash, key.phy_offset, diff, previous)
        SLOT.pack_into(self.data, at, self.next_index)
        self.next_index += 1
        return bool(previous == 0)


def seconds(store_timestamp: int, begin_timestamp: int) -> int:
    """Return what an entry stores of the time of its record."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), MAX_INT)
