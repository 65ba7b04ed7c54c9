"""StateCache: last and first unit of the queues in use, in arrays of a bounded size.

A dict leads from a queue's key prefix to a slot; what is known stands in columns. When all slots
are taken the CLOCK algorithm looks for one that was not used since its hand came by last. About
190 bytes a queue of a 19-byte topic; nothing for queues that nobody uses.
"""

import numpy as np
from numpy.typing import NDArray

_FIRST_SLOTS = 1024
_STRETCH = 4096
"""Slots that the hand passes in one step."""
FIELDS = 4
UNKNOWN = -1
"""In all fields of a queue without units, and in those of a first unit nobody has looked for."""


class StateCache:
    """Rows ``(last phy, last offset, first phy, first offset)`` by prefix.

    Not thread-safe: the table that owns it holds a lock around every call. Whole after an exception
    between any two instructions: a change that was cut short drops all that was here.
    """

    def __init__(self, capacity: int) -> None:
        """Take room for ``capacity`` queues, as it is needed."""
        self.capacity = capacity
        self.clear()

    def __len__(self) -> int:
        if self._changing:
            self.clear()
        return len(self._slots)

    def clear(self) -> None:
        """Drop every queue, and what a change that was cut short has left."""
        self._changing = True
        """A change has begun and has not come to its end: slots and columns may not fit."""
        self._slots: dict[bytes, int] = {}
        self._prefixes: list[bytes] = []
        self._rows = np.empty((0, FIELDS), np.int64)
        self._used = np.empty(0, bool)
        self._free: list[int] = []
        self._hand = 0
        self._changing = False

    def get(self, prefix: bytes) -> list[int] | None:
        """Return the row of one queue, ``None`` if it is not here."""
        if self._changing:
            self.clear()
        slot = self._slots.get(prefix)
        if slot is None:
            return None
        self._used[slot] = True
        row: list[int] = self._rows[slot].tolist()
        return row

    def last_offset(self, prefix: bytes) -> int | None:
        """Return the offset of a queue's last unit alone, ``None`` if it is not here."""
        if self._changing:
            self.clear()
        slot = self._slots.get(prefix)
        if slot is None:
            return None
        self._used[slot] = True
        offset: int = self._rows.item(slot, 1)
        return offset

    def find(self, prefixes: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.intp]]:
        """Return a row for each of ``prefixes``, and the places of those that are not here."""
        if self._changing:
            self.clear()
        get = self._slots.get
        slots = np.array([get(prefix, UNKNOWN) for prefix in prefixes], np.int64)
        missing = np.flatnonzero(slots < 0)
        rows = np.full((len(prefixes), FIELDS), UNKNOWN, np.int64)
        known = slots >= 0
        rows[known] = self._rows[slots[known]]
        self._used[slots[known]] = True
        return rows, missing

    def put(self, prefixes: list[bytes], rows: NDArray[np.int64]) -> None:
        """Set the rows of ``prefixes``; of more new ones than fit the last stay."""
        if self._changing:
            self.clear()
        self._changing = True
        slots_of = self._slots  # new ones count as used only when somebody asks for them again
        new = [prefix for prefix in dict.fromkeys(prefixes) if prefix not in slots_of]
        new = new[-self.capacity :]
        if new:
            for prefix, slot in zip(new, self._take(len(new)), strict=True):
                slots_of[prefix] = slot
                self._prefixes[slot] = prefix
        slots = np.array([slots_of.get(prefix, UNKNOWN) for prefix in prefixes], np.int64)
        # The hand may have met some of those that were here before; the others get their new row,
        # also where ``new`` alone would fill the cache: an old one would be taken for true.
        here = slots >= 0
        self._rows[slots[here]] = rows[here]
        self._changing = False

    def put_one(self, prefix: bytes, row: list[int]) -> None:
        """Set the row of one queue; as ``put``, without arrays."""
        if self._changing:
            self.clear()
        self._changing = True
        slot = self._slots.get(prefix)
        if slot is None:
            (slot,) = self._take(1)
            self._slots[prefix] = slot
            self._prefixes[slot] = prefix
        self._rows[slot] = row
        self._changing = False

    def set_first(self, prefix: bytes, phy_offset: int, queue_offset: int) -> None:
        """Set the first unit of a queue, if it is here."""
        slot = self._slots.get(prefix)  # behind a change that was cut short all of it goes anyway
        if slot is not None:
            self._rows[slot, 2:] = phy_offset, queue_offset

    def discard(self, prefix: bytes) -> None:
        """Drop one queue, if it is here."""
        if self._changing:
            self.clear()
        self._changing = True
        slot = self._slots.pop(prefix, None)
        if slot is not None:
            self._prefixes[slot] = b""
            self._free.append(slot)
        self._changing = False

    def _take(self, count: int) -> list[int]:
        """Return ``count`` slots that are nobody's."""
        if len(self._free) < count:
            self._grow(len(self._slots) + count)
        while len(self._free) < count:
            self._evict(count - len(self._free))
        taken = self._free[-count:]
        del self._free[-count:]
        return taken

    def _grow(self, wanted: int) -> None:
        before = len(self._prefixes)
        if wanted <= before or before == self.capacity:
            return
        size = min(max(wanted, 2 * before, _FIRST_SLOTS), self.capacity)
        self._prefixes += [b""] * (size - before)
        self._rows = np.concatenate([self._rows, np.empty((size - before, FIELDS), np.int64)])
        self._used = np.concatenate([self._used, np.zeros(size - before, bool)])
        self._free += range(before, size)

    def _evict(self, count: int) -> None:
        """Move the hand until it has met ``count`` slots not used since its last time; free them.

        At most once over a stretch of slots: where all were used, it goes on with the next call.
        """
        if count == 1 and not self._used[self._hand]:  # as below, for a twentieth of the time
            self._free_slot(self._hand)
            self._hand = (self._hand + 1) % self.capacity
            return
        length = min(max(count, _STRETCH), self.capacity)
        span = np.arange(self._hand, self._hand + length) % self.capacity
        idle = np.flatnonzero(~self._used[span])[:count]
        if len(idle) == count:
            span = span[: idle[-1] + 1]
        self._used[span] = False
        self._hand = (self._hand + len(span)) % self.capacity
        for slot in span[idle].tolist():
            self._free_slot(slot)

    def _free_slot(self, slot: int) -> None:
        prefix = self._prefixes[slot]
        if prefix:
            del self._slots[prefix]
            self._prefixes[slot] = b""
            self._free.append(slot)
