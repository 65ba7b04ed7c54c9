"""Comparison of a follower with its broker: all units while the broker runs, then the ends.

The broker's store is opened read-only, also while the broker has it open.
"""

from itertools import islice
from pathlib import Path

from cqstore.replication.ha.logs import are_same, parts
from cqstore.store.comparing.compared import Compared
from cqstore.store.comparing.open_sides import compare_stores
from cqstore.store.comparing.queue_walk import NO_END, Bounds
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

_PIECE_BYTES = 4 << 20
_TAIL_BYTES = 1 << 26
"""Number of last common bytes of both logs that are compared after the broker has stopped."""


def compare_with_broker(theirs: MessageStore, own: MessageStore, since: int = 0) -> Compared:
    """Compare all queues of ``own``, which is not written meanwhile, with those of the broker.

    Units below phy offset ``since`` and after the end of ``own``'s log are ignored.

    Raises:
        StoreError: the broker's queues cannot be read.
    """
    begin = max(theirs.min_phy_offset(), since, 0)
    bounds = Bounds(begin, own.max_phy_offset())
    return compare_stores(components_of(theirs).queues, components_of(own).queues, bounds)


def compare_shown(theirs: MessageStore, own: MessageStore) -> tuple[Compared, int]:
    """Compare up to the phy offset that a running broker's queues show; return that offset too.

    ``theirs`` was opened after ``own`` got its last unit.

    Raises:
        StoreError: the broker's queues cannot be read.
    """
    end, queues = own.max_phy_offset(), components_of(theirs).queues
    # The broker keeps new units of RocksDB queues in memory, without a write-ahead log, until it
    # flushes them: another process sees the state of the last flush.
    shown = queues.dispatch_from_phy_offset() if queues.hides_unflushed else NO_END
    if shown >= end:
        return compare_with_broker(theirs, own), end
    bounds = Bounds(max(theirs.min_phy_offset(), 0), shown)
    # Ours is the reference: the broker's copy may lack units that end after the bound.
    return compare_stores(components_of(own).queues, queues, bounds), shown


LastUnits = dict[QueueKey, tuple[int, int]]
"""Queue offset and phy offset of the last unit of each queue that has one in the log."""


def last_units(store: MessageStore) -> LastUnits:
    """Read the last unit of each queue of a store.

    Raises:
        StoreError: one cannot be read.
    """
    queues, found = components_of(store).queues, LastUnits()
    for key, low, high in queues.spans():
        if low >= high:
            continue
        queue = queues.queue(*key)
        if queues.queue_type(key.topic) is QueueType.BATCH:
            units = ((unit.queue_offset, unit.phy_offset) for unit in queue.iterate(high - 1))
        else:
            units = ((high - 1, row[0]) for row in queue.read_units(high - 1, 1).rows())
        found.update((key, unit) for unit in islice(units, 1))
    return found


def deleted_topics(theirs: LastUnits, ours: LastUnits) -> list[str]:
    """Return topics whose queues the broker has deleted, though their records are in the log.

    A topic counts only if the broker has dispatched a later record: otherwise its queue may not
    exist yet.
    """
    dispatched_to = max((phy_offset for _, phy_offset in theirs.values()), default=-1)
    there = {key.topic for key in theirs}
    newest: dict[str, int] = {}
    for key, (_, phy_offset) in ours.items():
        if key.topic not in there:
            newest[key.topic] = max(phy_offset, newest.get(key.topic, -1))
    return sorted(topic for topic, phy_offset in newest.items() if phy_offset < dispatched_to)


def refuse_other_ends(theirs: LastUnits, ours: LastUnits, broker: Path) -> None:
    """Refuse queues whose last units differ, or that only one side has.

    Raises:
        RefusedStoreError: there is such a queue; the message names the first.
    """
    for key in [*theirs, *(key for key in ours if key not in theirs)]:
        unit, mine = theirs.get(key), ours.get(key)
        if unit != mine:
            raise RefusedStoreError(
                f"queue {key.queue_id} of topic {key.topic!r}: the broker's last unit is"
                f" {_place(unit)}, the new store's is {_place(mine)}",
                path=broker,
            )


def _place(unit: tuple[int, int] | None) -> str:
    return f"{unit[0]} at phy offset {unit[1]}" if unit else "missing"


def refuse_lost_history(theirs: CommitLog, own: CommitLog) -> None:
    """Refuse a new store whose log begins after the broker's.

    Raises:
        RefusedStoreError: it does: it began with the last file, and earlier files were not copied.
    """
    begin, there = own.min_phy_offset(), theirs.min_phy_offset()
    if begin > there:
        raise RefusedStoreError(
            f"the broker's log begins at {there}, the new store's at {begin}: older messages would"
            " be lost. Start again with an empty folder",
            path=theirs.files.folder,
        )


def refuse_other_tail(theirs: CommitLog, own: CommitLog) -> None:
    """Refuse a broker's log that differs from ``own``, or ends before it.

    Raises:
        RefusedStoreError: it ends earlier, or the last common bytes differ.
    """
    end, theirs_end = own.max_phy_offset(), theirs.max_phy_offset()
    if theirs_end < end:
        raise RefusedStoreError(
            f"the broker's log ends at {theirs_end}, the new store's at {end}: the broker has lost"
            " data that it had sent. Keep both stores",
            path=theirs.files.folder,
        )
    minimum = max(theirs.min_phy_offset(), own.min_phy_offset(), 0)
    for part in parts(theirs, own, range(max(minimum, end - _TAIL_BYTES), end)):
        if not are_same(theirs.view(part.start, len(part)), own.view(part.start, len(part))):
            raise RefusedStoreError(
                f"the logs differ between phy offsets {part.start} and {part.stop}",
                path=theirs.files.folder,
            )


def drain(theirs: CommitLog, own: MessageStore) -> int:
    """Append the rest of the broker's log to ``own``; return the number of bytes.

    Raises:
        CorruptionError: the broker's log does not continue with complete records.
        StoreError: as for ``append_to_commit_log``.
    """
    begin = own.max_phy_offset()
    end, at = theirs.max_phy_offset(), begin
    file_size, limit = theirs.files.file_size, _PIECE_BYTES
    while at < end:
        size = min(limit, end - at, file_size - at % file_size)
        new_end = own.append_to_commit_log(at, theirs.files.read(at, size))
        if new_end == at:
            if size < limit:
                raise CorruptionError(
                    "no complete record found in the broker's log",
                    path=theirs.files.folder, phy_offset=at,
                )  # fmt: skip
            limit *= 2  # a record longer than that
        at = new_end
    return at - begin
