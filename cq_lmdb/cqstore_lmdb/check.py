"""Checks of the database without the log, in one transaction and bounded memory.

LMDB has no checksums of pages: these checks find what breaks the rules of this backend. For the
pages themselves there is ``python -m lmdb verify``, on a store that is closed.
"""

from collections.abc import Iterator

from cqstore.store.errors import CorruptionError
from cqstore.store.progress import Progress
from cqstore.store.queue.facts import QueueFinding
from cqstore.store.queue.units import QUEUE_UNIT, QueueKey
from cqstore_lmdb.database import DATA_FILE, Database
from cqstore_lmdb.layout import QueueEnds, block_number, block_units, numbers, parse_queue_key
from cqstore_lmdb.memory import Snapshot, parse_ends

_PROGRESS = 4_096
_READ_UNITS = 1_024


def check_tables(
    snapshot: Snapshot, checkpoint: int, log_end: int, database: Database
) -> Iterator[QueueFinding]:
    """Yield the findings of all committed queues."""
    path = str(database.folder / DATA_FILE)
    if checkpoint > log_end:
        problem = f"the checkpoint {checkpoint} is after the log's end {log_end}"
        yield QueueFinding(
            problem, path, expected=f"at most {log_end}", found=checkpoint, all_queues=True
        )
    blocks = 0
    for key, value in snapshot.txn.cursor(database.queues):
        try:
            queue, ends = parse_queue_key(key), parse_ends(key, value)
        except CorruptionError as exc:
            yield QueueFinding(
                exc.reason, path, key=key, expected=exc.expected, found=exc.got, all_queues=True
            )
            continue
        blocks += len(numbers(ends))
        yield from _units(snapshot, path, key, queue, ends)
    found = snapshot.txn.stat(database.units)["entries"]
    if found != blocks:
        problem = f"the queues have {blocks} blocks, the database has {found}"
        yield QueueFinding(problem, path, expected=blocks, found=found, all_queues=True)


def _units(
    snapshot: Snapshot, path: str, key: bytes, queue: QueueKey, ends: QueueEnds
) -> Iterator[QueueFinding]:
    """Yield the first missing unit of a queue, and the first one that is out of order."""
    at, before = ends.first, -1
    while at < ends.next:
        try:
            data = snapshot.stored_units(key, at, min(at + _READ_UNITS, ends.next))
        except CorruptionError as exc:
            yield QueueFinding(
                exc.reason, path, queue, at, key=key, expected=exc.expected, found=exc.got
            )
            return
        for place, unit in enumerate(QUEUE_UNIT.iter_unpack(data), at):
            if unit.phy_offset <= before:
                problem = f"phy_offset {unit.phy_offset} is not after the previous one, {before}"
                yield QueueFinding(
                    problem, path, queue, place, key=key, expected=f"more than {before}",
                    found=unit.phy_offset,
                )  # fmt: skip
                return
            before = unit.phy_offset
        if not data:
            problem = f"unit {at} is missing"
            yield QueueFinding(problem, path, queue, at, key=key, expected="a unit", found="none")
            return
        at += len(data) // QUEUE_UNIT.size
    if ends.first < ends.next and before != ends.last_phy:
        problem = f"the entry has phy_offset {ends.last_phy}, its last unit has {before}"
        yield QueueFinding(
            problem, path, queue, ends.next - 1, key=key, expected=ends.last_phy, found=before
        )


def read_tables(snapshot: Snapshot, database: Database, progress: Progress) -> None:
    """Read all entries and blocks.

    Raises:
        CorruptionError: one of them is invalid.
    """
    count = 0
    for key, value in snapshot.txn.cursor(database.queues):
        parse_ends(key, value)
        count += 1
    for key, value in snapshot.txn.cursor(database.units):
        block_units(value, block_number(key))
        count += 1
        if count % _PROGRESS == 0:
            progress(count)
    progress(count)
