"""Units in memory: what was put since the last commit.

A commit writes at least a page per queue, and is synced. So units wait in memory until a flush, as
in RocksDB's memtables, and each queue is written once per flush. A process that is killed loses
them; the next start dispatches the log from the checkpoint that was committed with the last ones.
"""

from collections.abc import Callable
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import lmdb

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.errors import CorruptionError
from cqstore.store.queue.units import MAX_UNITS
from cqstore_lmdb.database import Database
from cqstore_lmdb.layout import (
    BLOCK_UNITS,
    QUEUE_ENDS,
    UNIT_BYTES,
    QueueEnds,
    block_key,
    block_units,
)

P = ParamSpec("P")
T = TypeVar("T")
ENTRY_BYTES = 300
"""Approximate memory of a queue with changes, without its units."""


class MemoryQueue(NamedTuple):
    """Changes of one queue: they replace its units from ``base`` on."""

    ends: QueueEnds | None
    """``None``: the queue is deleted."""
    base: int
    units: bytearray
    """Grows only; units after ``ends`` are not part of the queue."""


DELETED = NO_CHANGE = MemoryQueue(None, 0, bytearray())
Changes = dict[bytes, MemoryQueue]


class QueueView:
    """One queue at one moment."""

    __slots__ = ("_key", "_parts", "_tables", "ends")

    def __init__(
        self, key: bytes, ends: QueueEnds, parts: tuple[MemoryQueue, ...], tables: "Snapshot"
    ) -> None:
        """``parts``: changes, the newest first."""
        self._key, self.ends, self._parts, self._tables = key, ends, parts, tables

    def units(self, start: int, stop: int) -> bytes | bytearray:
        """Return the units [start, stop) up to the first missing one, within the ends."""
        pieces: list[bytes | bytearray] = []
        for part in self._parts:
            if start >= stop:
                break
            if part.base < stop:
                low = max(start, part.base)
                pieces.append(
                    part.units[(low - part.base) * UNIT_BYTES : (stop - part.base) * UNIT_BYTES]
                )
                stop = low
        if start < stop:
            stored = self._tables.stored_units(self._key, start, stop)
            if len(stored) < (stop - start) * UNIT_BYTES:
                return stored
            pieces.append(stored)
        return pieces[0] if len(pieces) == 1 else b"".join(reversed(pieces))

    def unit(self, offset: int) -> bytes | bytearray:
        """Return a unit within the ends.

        Raises:
            CorruptionError: it is missing.
        """
        data = self.units(offset, offset + 1)
        if not data:
            raise CorruptionError(
                f"the queue with key {self._key.hex()} lacks a unit", expected=f"unit {offset}"
            )
        return data

    def phy_offset(self, offset: int) -> int:
        """Return the phy offset of a unit within the ends."""
        return int.from_bytes(self.unit(offset)[:8], signed=True)

    def first_in_log(self, phy_offset: int) -> int:
        """Return the offset of the first unit whose record is at or after ``phy_offset``."""
        low, high, last_phy = self.ends
        if last_phy < phy_offset:
            return high
        middle = low  # usually it is the first unit
        while low < high:
            if self.phy_offset(middle) >= phy_offset:
                high = middle
            else:
                low = middle + 1
            middle = (low + high) // 2
        return low


class Snapshot:
    """All queues at one moment; valid inside ``Memory.read``."""

    __slots__ = ("_database", "_frozen", "_live", "txn")

    def __init__(self, live: Changes, frozen: Changes, txn: Any, database: Database) -> None:
        self._live, self._frozen, self.txn, self._database = live, frozen, txn, database

    def queue(self, key: bytes) -> QueueView | None:
        """Return a queue, ``None`` if it does not exist."""
        live, frozen = self._live.get(key), self._frozen.get(key)
        newest = live or frozen
        if newest is None:
            ends = self.stored_ends(key)
            return None if ends is None else QueueView(key, ends, (), self)
        if newest.ends is None:
            return None
        parts = (newest,) if frozen is None or frozen is newest else (newest, frozen)
        return QueueView(key, newest.ends, parts, self)

    def change_of(self, key: bytes) -> MemoryQueue:
        """Return the changes of a queue since the last freeze; without any, none at its end."""
        change = self._live.get(key)
        if change is not None:
            return change
        view = self.queue(key)
        return NO_CHANGE if view is None else MemoryQueue(view.ends, view.ends.next, bytearray())

    def stored_ends(self, key: bytes) -> QueueEnds | None:
        """Return the entry of a queue in the database."""
        value = self.txn.get(key, db=self._database.queues)
        return None if value is None else parse_ends(key, value)

    def stored_units(self, key: bytes, start: int, stop: int) -> bytes:
        """Return the units [start, stop) of the database, up to the first missing one."""
        get, table = self.txn.get, self._database.units
        pieces, at = [], start
        for number in range(start // BLOCK_UNITS, (stop - 1) // BLOCK_UNITS + 1):
            value = get(block_key(key, number), db=table)
            first, units = block_units(value, number) if value else (at + 1, b"")
            if first > at:
                break
            piece = units[(at - first) * UNIT_BYTES : (stop - first) * UNIT_BYTES]
            pieces.append(piece)
            at += len(piece) // UNIT_BYTES
            if at % BLOCK_UNITS:
                break
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def stored_queues(self) -> int:
        """Return the number of entries in the database."""
        count: int = self.txn.stat(self._database.queues)["entries"]
        return count

    def page(self, start: bytes, end: bytes, limit: int) -> tuple[list[bytes], bool]:
        """Return keys of at most ``limit`` stored queues in a range, and whether those are all."""
        cursor = self.txn.cursor(self._database.queues)
        found: list[bytes] = []
        if cursor.set_range(start):
            for key in cursor.iternext(values=False):
                if key >= end:
                    break
                if len(found) == limit:
                    return found, False
                found.append(key)
        return found, True


class Memory:
    """Changes since the last commit, and snapshots of them with the database. Any thread reads.

    ``frozen`` changes are being committed, ``live`` ones are not. Until a commit has ended, readers
    use both. One call at a time changes queues of a topic, and one at a time freezes.
    """

    def __init__(self, database: Database, checkpoint: int) -> None:
        self._database = database
        self.lock = CheckedLock("a look at the queues in memory")  # guards all fields below
        self._live: Changes = {}
        self._frozen: Changes = {}
        self.bytes = 0
        """Approximate size of the live changes."""
        self.checkpoint = checkpoint
        self.stored_checkpoint = checkpoint

    @property
    def has_frozen(self) -> bool:
        """Return whether there are frozen changes that are not committed."""
        return bool(self._frozen)

    def read(
        self, use: Callable[Concatenate["Snapshot", P], T], *args: P.args, **more: P.kwargs
    ) -> T:
        """Call ``use`` with all queues at one moment, and ``args``.

        The transaction begins under the lock: a commit between the two would show neither the
        changes nor what they became. (A function: a context manager takes twice as long.)
        """
        database = self._database
        with database.read_lock():
            try:
                with self.lock.entry():
                    live, frozen, txn = self._live, self._frozen, database.begin()
                try:
                    return use(Snapshot(live, frozen, txn, database), *args, **more)
                finally:
                    txn.abort()
            except lmdb.Error as exc:
                raise database.error_of(exc) from exc

    def change(self, changes: Changes, new: dict[bytes, bytes], checkpoint: int) -> None:
        """Apply ``changes`` at once, after adding ``new`` units to those of each queue."""
        with self.lock.entry():
            for key, units in new.items():
                changes[key].units.extend(units)
                self.bytes += len(units)
            self.bytes += ENTRY_BYTES * sum(key not in self._live for key in changes)
            self._live.update(changes)
            self.checkpoint = checkpoint

    def freeze(self) -> tuple[Changes, int] | None:
        """Return the changes to commit, with their checkpoint; ``None``: there is nothing new.

        After a commit that failed, these are the same changes again.
        """
        with self.lock.entry():
            if not self._frozen:
                if not self._live and self.checkpoint == self.stored_checkpoint:
                    return None
                self._frozen, self._live, self.bytes = self._live, {}, 0
                self._frozen_checkpoint = self.checkpoint
            return self._frozen, self._frozen_checkpoint

    def committed(self) -> None:
        """Drop the frozen changes, which the database contains now."""
        with self.lock.entry():
            self._frozen = {}
            self.stored_checkpoint = self._frozen_checkpoint

    def changed_keys(self, start: bytes, end: bytes) -> list[bytes]:
        """Return the keys of changed queues in [start, end), sorted."""
        with self.lock.entry():
            keys = self._live.keys() | self._frozen.keys()
        return sorted(key for key in keys if start <= key < end)


def parse_ends(key: bytes, value: bytes) -> QueueEnds:
    """Return the ends in an entry.

    Raises:
        CorruptionError: they are invalid.
    """
    ends = QUEUE_ENDS.unpack_from(value) if len(value) == QUEUE_ENDS.size else None
    if ends is None or not 0 <= ends.first <= ends.next <= MAX_UNITS:
        raise CorruptionError(
            f"the entry of the queue with key {key.hex()} is invalid",
            expected=f"offsets from 0 to {MAX_UNITS}", got=ends or f"{len(value)} bytes",
        )  # fmt: skip
    return ends
