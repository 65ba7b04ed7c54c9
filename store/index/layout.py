"""The hash index on disk: a 40-byte header, the slots, the entries.

A slot is the number of the newest entry of its chain, four bytes; 0: the slot is empty. An entry
points to the previous one in its chain, whose number is always lower. Entry 0 is never used. The
numbers of slots and entries are not stored in the file.

Source: RocketMQ ``IndexHeader``, ``IndexFile``.
"""

from typing import Annotated, NamedTuple

from cqstore.store.java_numbers import INT_MAX
from cqstore.store.record.layout import Layout, Wire


class IndexHeader(NamedTuple):
    """The head of an index file."""

    begin_timestamp: Annotated[int, Wire("q", "store time of the first entry's record, ms")]
    end_timestamp: Annotated[int, Wire("q", "store time of the last entry's record, ms")]
    begin_phy_offset: Annotated[int, Wire("q", "start of the first entry's record, bytes")]
    end_phy_offset: Annotated[int, Wire("q", "start of the last entry's record, bytes")]
    hash_slot_count: Annotated[int, Wire("i", "slots in use")]
    index_count: Annotated[int, Wire("i", "number of the next entry; 0 before the first put")]


class IndexEntry(NamedTuple):
    """One key of one record."""

    key_hash: Annotated[int, Wire("i", "hash of topic, `#` and key, never negative")]
    phy_offset: Annotated[int, Wire("q", "start of the record")]
    time_diff: Annotated[int, Wire("i", "store time, seconds after the file's begin timestamp")]
    previous_index: Annotated[int, Wire("i", "previous entry of the chain; 0: none")]


class IndexSlot(NamedTuple):
    """The slot of a hash: the head of its chain of entries."""

    newest: Annotated[int, Wire("i", "newest entry of the chain; 0: none")]


INDEX_HEADER = Layout(IndexHeader)
INDEX_ENTRY = Layout(IndexEntry)
INDEX_SLOT = Layout(IndexSlot)

ENTRY_DTYPE = INDEX_ENTRY.dtype
"""The same entry as a numpy row, for whole blocks."""
SLOT_DTYPE = INDEX_SLOT.dtype["newest"]

MAX_TIME_DIFF = INT_MAX


class IndexGeometry(NamedTuple):
    """Numbers of slots and entries per file of a store (``maxHashSlotNum``, ``maxIndexNum``)."""

    slots: int
    entries: int
    """Including entry 0, which is not used."""

    @property
    def file_size(self) -> int:
        """Return the size of one file in bytes."""
        return self.entry_position(self.entries)

    def entry_position(self, index: int) -> int:
        """Return the position of entry ``index`` in the file, in bytes."""
        return slot_position(self.slots) + INDEX_ENTRY.size * index


def slot_position(slot: int) -> int:
    """Return the position of ``slot`` in the file, in bytes."""
    return INDEX_HEADER.size + INDEX_SLOT.size * slot


def time_diff(store_timestamp: int, begin_timestamp: int) -> int:
    """Return the seconds that an entry stores for its record."""
    if begin_timestamp <= 0:
        return 0
    return min(max((store_timestamp - begin_timestamp) // 1000, 0), MAX_TIME_DIFF)
