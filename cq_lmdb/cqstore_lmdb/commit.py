"""Writes changed queues into the database, in one transaction."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from cqstore.store.errors import CorruptionError
from cqstore_lmdb.database import Database
from cqstore_lmdb.layout import (
    BLOCK_UNITS,
    CHECKPOINT,
    CHECKPOINT_KEY,
    QUEUE_ENDS,
    UNIT_BYTES,
    Checkpoint,
    QueueEnds,
    block_key,
    block_units,
    blocks_of,
    numbers,
)
from cqstore_lmdb.memory import Changes, MemoryQueue, parse_ends

_PUTS = 10_000


def write_changes(database: Database, changes: Changes, checkpoint: int) -> None:
    """Commit ``changes`` and the checkpoint: all of them or none, durably."""
    with database.translated(), database.begin(write=True) as txn:
        blocks = _blocks(txn, database, changes)
        cursor = txn.cursor(database.units)
        while some := list(islice(blocks, _PUTS)):
            cursor.putmulti(some)
        entries = [(key, QUEUE_ENDS.pack(part.ends)) for key, part in _sorted(changes) if part.ends]
        txn.cursor(database.queues).putmulti(entries)
        txn.put(CHECKPOINT_KEY, CHECKPOINT.pack(Checkpoint(checkpoint)))


def _blocks(txn: Any, database: Database, changes: Changes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the blocks to write, in key order; delete those that are to go, and entries."""
    for key, part in _sorted(changes):
        value = txn.get(key, db=database.queues)
        before = None if value is None else parse_ends(key, value)
        if before is not None:
            for number in _gone(before, part):
                txn.delete(block_key(key, number), db=database.units)
        if part.ends is None:
            txn.delete(key, db=database.queues)
            continue
        if part.ends.next > part.base or before is None or before.next != part.base:
            yield from _changed(txn, database, key, part, part.ends)


def _sorted(changes: Changes) -> list[tuple[bytes, MemoryQueue]]:
    return sorted(changes.items(), key=lambda item: item[0])


def _gone(before: QueueEnds, part: MemoryQueue) -> Iterator[int]:
    """Yield the numbers of the blocks that a queue does not have any more."""
    old = numbers(before)
    new = range(0) if part.ends is None else numbers(part.ends)
    yield from range(old.start, min(old.stop, new.start if new else old.stop))
    if new:
        yield from range(max(new.stop, old.start), old.stop)


def _changed(
    txn: Any, database: Database, key: bytes, part: MemoryQueue, ends: QueueEnds
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the blocks of a queue from its ``base`` on; the first one may have stored units.

    Raises:
        CorruptionError: the stored units do not reach up to ``base``.
    """
    first, units = part.base, bytes(part.units[: (ends.next - part.base) * UNIT_BYTES])
    number = first // BLOCK_UNITS
    if first % BLOCK_UNITS and ends.first < first and number in numbers(ends):
        value = txn.get(block_key(key, number), db=database.units)
        start, stored = block_units(value, number) if value else (first, b"")
        kept = stored[: (first - start) * UNIT_BYTES]
        if (
            start > max(ends.first, number * BLOCK_UNITS)
            or len(kept) != (first - start) * UNIT_BYTES
        ):
            raise CorruptionError(
                f"the queue with key {key.hex()} lacks units", path=database.folder,
                expected=f"units up to {first}", got=f"{len(kept) // UNIT_BYTES} in block {number}",
            )  # fmt: skip
        first, units = start, kept + units
    for number, value in blocks_of(first, units):
        yield block_key(key, number), value
