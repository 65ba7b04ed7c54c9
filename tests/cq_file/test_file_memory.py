"""Memory of file queues: an open store may have a million of them, and a closed one has none."""

import sys
from pathlib import Path

from tests.kit.file_queues import Disk, put, rows

MAX_BYTES = 176
"""Of one queue without the paths of its files, which it keeps only once it is read or written."""


def test_a_queue_is_small(tmp_path: Path) -> None:
    store = Disk(tmp_path).open()
    put(store, 0, rows(0, 3))
    assert sys.getsizeof(store._table.simple["T"][0]) <= MAX_BYTES
    store.close()


def test_a_closed_store_holds_no_queue(tmp_path: Path) -> None:
    """A switch opens the store twice: the first queues must not wait for the collector."""
    store = Disk(tmp_path).open()
    put(store, 0, rows(0, 3))
    queue = store._table.simple["T"][0]
    store.close()
    assert sys.getrefcount(queue) == 2  # variable and argument


def test_queues_that_are_being_listed_are_listed_to_the_end(tmp_path: Path) -> None:
    store = Disk(tmp_path).open()
    put(store, 0, rows(0, 3))
    put(store, 0, rows(0, 3), "U")
    listed = store.queues()
    store.close()
    assert [key.topic for key in listed] == ["T", "U"]
