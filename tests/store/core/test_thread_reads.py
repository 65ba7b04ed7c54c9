"""Threads that only read, where each read of a queue file lets the others run in its midst."""

import random
import threading
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.cold_pages import folder_in_memory, pages_dropped
from tests.kit.shim import Shim
from tests.kit.waiting import run_threads

QUEUES, UNITS = 24, 1000
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20 * UNITS,
    queue_files_max=16,
)  # fmt: skip
"""Fewer files are open than there are queues: files are opened and mapped anew all the time."""
THREADS, ROUNDS = 6, 2500


@pytest.fixture(params=["in memory", pytest.param("dropped", marks=pytest.mark.disk)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "in memory":
        with folder_in_memory(tmp_path) as folder:
            yield folder / "store"
    else:
        with pages_dropped(tmp_path):
            yield tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[MessageStore]:
    with MessageStore.open(root, CONFIG, backend="file", housekeeping=False) as opened:
        for _ in range(UNITS):
            opened.put_messages([Message("t", b"x", queue) for queue in range(QUEUES)])
        opened.flush()
        yield opened


def stored_times(store: MessageStore, queue: int) -> list[int]:
    times = list[int]()
    while len(times) < UNITS:
        found = store.get_message("t", queue, len(times), 100)
        times += [message.store_timestamp for message in found.messages()]
    return times


def test_threads_that_read_the_same_queues_are_told_the_truth(store: MessageStore) -> None:
    times = [stored_times(store, queue) for queue in range(QUEUES)]
    wrong = list[BaseException]()

    def read(seed: int) -> None:
        draw = random.Random(seed)
        try:
            for _ in range(ROUNDS):
                queue, offset = draw.randrange(QUEUES), draw.randrange(UNITS)
                found = store.get_message("t", queue, offset, 4).messages()
                assert [one.queue_offset for one in found][:1] == [offset]
                time = times[queue][offset]
                assert store.offset_by_time("t", queue, time) == bisect_left(times[queue], time)
        except BaseException as exc:  # noqa: BLE001 - told below
            wrong.append(exc)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(THREADS)]
    run_threads(threads)
    assert wrong == []


def test_a_map_lives_as_long_as_a_read_that_may_use_it(store: MessageStore, root: Path) -> None:
    """Another thread may let go of it in the midst of the read."""
    queues: Any = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    path = str(root / "consumequeue" / "t" / "0" / f"{0:020d}")
    table: Any = queues._table
    units = table.fast
    for _ in range(8):
        assert units.fast_units(table, "t", 0, 0, 4) is not None
    entries: Any = queues._cache.entries
    file = entries[path]
    entries.clear()
    entries[path] = file
    assert path in maps()
    had_map = list[bool]()

    def let_go(_: str, read: str) -> None:
        if read == path and file.mapped is not None:
            file.mapped = None
            had_map.append(path in maps())

    with Shim() as shim:
        shim.watch(root)
        shim.notify(let_go, "/cq_file/_units")
        assert units.fast_units(table, "t", 0, UNITS - 4, 4) is not None
    assert had_map == [True]
    assert path not in maps()


def maps() -> str:
    return Path("/proc/self/maps").read_text(encoding="utf-8")
