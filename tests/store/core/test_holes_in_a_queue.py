"""Queue files that were cut and grew again under an open store: searches go by what is left.

A hole counts as if it had the place and the time of the unit behind it. Fast and slow path
say the same.
"""

import os
import time
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest

from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.queue.time_search import BoundaryType
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.declining import Declines

COUNT, A_FILE, UNIT = 120, 50, 20
CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096, mapped_file_size_consume_queue=UNIT * A_FILE,
    message_index_enable=False,
)  # fmt: skip


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    store = MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False)
    for _ in range(COUNT):
        before = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == before:
            pass  # each has a time of its own
        assert store.put_message(Message("t", b"x" * 20, 0)).ok
    store.flush()
    return store


def make_hole(root: Path, hole: range) -> None:
    for number in hole:
        path = root / "consumequeue" / "t" / "0" / f"{number // A_FILE * A_FILE * UNIT:020}"
        with path.open("r+b") as file:
            os.pwrite(file.fileno(), bytes(UNIT), number % A_FILE * UNIT)


def with_hole(values: list[int], hole: range, end: int) -> list[int]:
    """Return what a search meets: in the hole that of the unit behind it, ``end`` without one."""
    behind = end if hole.stop == COUNT else values[hole.stop]
    return [behind if at in hole else value for at, value in enumerate(values)]


HOLES = [range(10, 40), range(30), range(55, 56), range(30, 90), range(100, COUNT), range(COUNT)]


@pytest.mark.parametrize("hole", HOLES, ids=str)
@pytest.mark.parametrize("compiled", [True, False])
def test_a_search_by_time_goes_over_a_hole_as_over_the_unit_behind_it(
    store: MessageStore, tmp_path: Path, hole: range, *, compiled: bool
) -> None:
    times = [message.store_timestamp for message in _all(store)]
    make_hole(tmp_path, hole)
    behind = with_hole(times, hole, end=times[-1] + 1_000)
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(queues._table, "fast", Declines())
        for requested in {each + step for each in times for step in (-1, 0, 1)}:
            lower = store.offset_by_time("t", 0, requested, BoundaryType.LOWER)
            assert lower == bisect_left(behind, requested), requested
            upper = store.offset_by_time("t", 0, requested, BoundaryType.UPPER)
            assert upper == max(bisect_right(behind, requested) - 1, 0), requested
    store.close()


@pytest.mark.parametrize("hole", HOLES[:-1], ids=str)
def test_the_minimum_is_found_in_spite_of_a_hole(
    store: MessageStore, tmp_path: Path, hole: range
) -> None:
    places = [message.phy_offset for message in _all(store)]
    make_hole(tmp_path, hole)
    behind = with_hole(places, hole, end=store.max_phy_offset() + 1)
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    files = queues._table.find("t", 0)
    assert isinstance(files, FileConsumeQueue)
    for phy in {each + step for each in places[1:] for step in (-1, 0, 1)}:
        assert files.first_at_or_behind(phy) == bisect_left(behind, phy), phy
    store.close()


def _all(store: MessageStore) -> list[StoredMessage]:
    found = list[StoredMessage]()
    while len(found) < COUNT:
        found += store.get_message("t", 0, len(found), COUNT).messages()
    return found
