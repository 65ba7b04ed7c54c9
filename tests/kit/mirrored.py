"""Stores with double write that mirror every read, and what became of the reads."""

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from cqstore.ab.mirror import mirror as mirror_module
from cqstore.ab.mirror.mirror import Mirror, MirrorSnapshot
from cqstore.ab.mirror.mirror_figures import MirrorFiguresSnapshot, read_figures
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.queue.consume_queue import ConsumeQueue, PulledUnits
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.queue.units import UnitBlock
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.reading.puller import TagFilter
from tests.kit.double_write import QUEUES, open_store
from tests.kit.queue_of import QUEUES_OF
from tests.kit.waiting import until


def open_mirrored(root: Path, read: str = "file", **changes: object) -> MessageStore:
    """Open a store with double write that mirrors every read, unless ``changes`` say otherwise."""
    store = open_store(root, read, **{"ab_share": 1.0, **changes})
    until(lambda: mirror_of(store)._goes_on or bool(mirror_of(store)._failure))
    return store


def by_hand(patched: pytest.MonkeyPatch) -> None:
    """Let mirrors that are made from now on look at nothing by themselves, see ``drive``."""
    patched.setattr(mirror_module, "LOOK_SECONDS", 3600)


def mirror_of(store: MessageStore) -> Mirror:
    mirror = components_of(store).interceptor
    assert isinstance(mirror, Mirror)
    return mirror


def drive(store: MessageStore) -> int:
    """Mirror all that waits, in this thread; return how many reads that were."""
    mirror, done = mirror_of(store), 0
    while (read := mirror._waiting.poll()) is not None:
        mirror._mirror(read)
        done += 1
    return done


def figures(store: MessageStore) -> MirrorFiguresSnapshot:
    snapshot = store.metrics.snapshot().interceptor
    assert isinstance(snapshot, MirrorSnapshot)
    return snapshot.figures


def outcomes(store: MessageStore) -> dict[ReadOutcome, int]:
    """How many reads had each outcome, without zeros."""
    found = figures(store)
    return {outcome: n for outcome in ReadOutcome if (n := found.count(outcome))}


def outcomes_of(root: Path) -> dict[ReadOutcome, int]:
    found = read_figures(root / "cqstore" / "ab" / "figures")
    assert found is not None
    return {outcome: n for outcome in ReadOutcome if (n := found.count(outcome))}


def read_all(store: MessageStore, topic: str = "t") -> int:
    """Ask everything that is mirrored once of each queue; return how many reads that were."""
    for queue_id in range(QUEUES):
        store.get_message(topic, queue_id, 0)
        store.get_message(topic, queue_id, 2, 3, TagFilter("tag17 || tag3"))
        store.get_message(topic, queue_id, 1 << 40)
        store.min_offset(topic, queue_id)
        store.max_offset(topic, queue_id)
        store.offset_by_time(topic, queue_id, 1 << 41, BoundaryType.LOWER)
        store.offset_by_time(topic, queue_id, 0, BoundaryType.UPPER)
        store.estimate_message_count(topic, queue_id, 0, 1 << 30, TagFilter("tag3"))
    return 8 * QUEUES


def wrong_units(
    patched: pytest.MonkeyPatch, name: str, spoil: Callable[[UnitBlock], UnitBlock | None]
) -> None:
    """Let what ``spoil`` gives be read of backend ``name``; ``None``: what is right."""
    kind = QUEUES_OF[name]
    read, pull = kind.read_units, kind.pull

    def read_units(self: ConsumeQueue, at: int, most: int) -> UnitBlock:
        block = read(self, at, most)
        return spoil(block) or block

    def pull_units(self: ConsumeQueue, at: int, most: int) -> PulledUnits:
        low, high, block = pull(self, at, most)
        return PulledUnits(low, high, block and (spoil(block) or block))

    patched.setattr(kind, "read_units", read_units)
    patched.setattr(kind, "pull", pull_units)


def another_phy(block: UnitBlock) -> UnitBlock:
    """Move the third unit of a block by one byte."""
    data = bytearray(block.data)
    data[2 * block.stride + 7] ^= 1
    return UnitBlock(block.queue_offset, bytes(data), block.stride, block.stop)


def without_last(block: UnitBlock) -> UnitBlock:
    data = bytes(block.data)[: -block.stride]
    return UnitBlock(block.queue_offset, data, block.stride, block.stop)


def only(
    number: int, spoil: Callable[[UnitBlock], UnitBlock]
) -> Callable[[UnitBlock], UnitBlock | None]:
    """Spoil the block that is read as the ``number``-th, no other."""
    calls = count(1)
    return lambda block: spoil(block) if next(calls) == number else None
