"""A store is closed at each moment of a read: the read has its answer, or is refused.

A close releases the queues. A read that began before must not take them for missing ones.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import NestedCallError, StoreClosedError
from cqstore.store.queue.time_search import BoundaryType
from tests.kit.file_queues import ADDRESS, Disk

Read = Callable[[FileConsumeQueueStore], object]
READS: dict[str, Read] = {
    "queues": lambda store: list(store.queues()),
    "queues of a topic": lambda store: list(store.queues("T")),
    "ends": lambda store: list(store.queue_ends()),
    "estimate": lambda store: store.queues_estimate(),
    "max": lambda store: store.queue("T", 0).max_offset(),
    "max of a batch queue": lambda store: store.queue("B", 0).max_offset(),
    "both": lambda store: store.queue("T", 0).ends(),
    "pull": lambda store: store.queue("T", 0).pull(0, 3)[:2],
    "units": lambda store: [*store.queue("T", 0).read_units(0, 3).rows()],
    "batch": lambda store: [unit.queue_offset for unit in store.queue("B", 0).iterate(0)],
    "time": lambda store: store.queue("T", 0).unit_timestamp(0),
    "by time": lambda store: store.queue("T", 0).offset_by_time(1, BoundaryType.LOWER),
    "type": lambda store: store.queue_type("B"),
    "address": lambda store: store.queue("T", 0).resolve_tags_code(ADDRESS),
    "describe": lambda store: store.describe(),
    "check": lambda store: [*store.check_files()],
}


def read_and_close(store: FileConsumeQueueStore, read: Read, at: int) -> tuple[object, int]:
    """Return what a read finds if another thread closes the store at its ``at``-th call or return.

    And how many there were.
    """
    events, is_closed = 0, False

    def hook(_frame: FrameType, _event: str, _arg: object) -> None:
        nonlocal events, is_closed
        events += 1
        if at and events >= at and not is_closed:
            sys.setprofile(None)
            with suppress(NestedCallError):  # another thread would wait for a lock of the read
                store.close()
                is_closed = True
            sys.setprofile(hook)

    found: object = StoreClosedError
    sys.setprofile(hook)
    try:
        found = read(store)
    except StoreClosedError:
        pass
    finally:
        sys.setprofile(None)
    return found, events


@pytest.mark.parametrize("name", READS)
def test_a_read_during_a_close_is_answered_or_refused(tmp_path: Path, name: str) -> None:
    disk = Disk(tmp_path)
    disk.fill("T", "consumequeue", "consumequeue_ext")
    disk.fill("B", "batchconsumequeue")
    store = disk.open(read_only=True)
    expected, events = read_and_close(store, READS[name], 0)
    store.close()
    for at in range(1, events + 1):
        store = disk.open(read_only=True)
        found, _ = read_and_close(store, READS[name], at)
        store.close()
        assert found in (expected, StoreClosedError), at
