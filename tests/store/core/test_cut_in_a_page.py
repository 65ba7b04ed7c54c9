"""Index and queue files that are cut inside a page: the rest of it reads as zeros through a map.

An answer is the right one or an error, never a wrong one; fast and slow path say the same.
"""

import os
from bisect import bisect_left
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import CorruptionError, TruncatedRecordError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.declining import Declines, decline_walks
from tests.store.core.test_maps import CONFIG, COUNT, filled, keyed, outcome


def by_slow_path(store: MessageStore, ask: Callable[[], object]) -> object:
    queues = components_of(store).queues
    assert isinstance(queues, FileConsumeQueueStore)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._queries, "fast", Declines())
        decline_walks(patch)
        patch.setattr(queues._table, "fast", Declines())
        return outcome(ask)


def truncated(found: object) -> bool:
    return isinstance(found, tuple) and found[0] is TruncatedRecordError


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return filled(tmp_path)


def test_a_query_is_right_or_names_what_is_missing(tmp_path: Path, store: MessageStore) -> None:
    with store:
        (path,) = (tmp_path / "index").iterdir()
        assert [keyed(store, number) for number in range(COUNT)] == [[at] for at in range(COUNT)]
        errors = 0
        for size in (12_300, 9000, 8500, 8192 + 20, 5000, 4096 + 3, 2000, 41, 20):
            os.truncate(path, size)
            for number in range(COUNT):
                found = outcome(partial(keyed, store, number))
                assert found == [number] or truncated(found), (size, number, found)
                errors += found != [number]
            found = outcome(lambda: keyed(store, 7))
            assert by_slow_path(store, lambda: keyed(store, 7)) == found
        assert errors > COUNT
        assert outcome(lambda: keyed(store, COUNT + 5)) != []  # a zero is not believed


def test_an_entry_that_became_zeros_is_missed(tmp_path: Path, store: MessageStore) -> None:
    with store:
        (path,) = (tmp_path / "index").iterdir()
        size = path.stat().st_size
        os.truncate(path, 40 + 4 * 2000 + 20 * 100)
        os.truncate(path, size)
        for number in range(COUNT):
            found = outcome(partial(keyed, store, number))
            if number < 99:
                assert found == [number]
            else:
                assert isinstance(found, tuple)
                assert found[0] is CorruptionError
                assert f"expected entry {number + 1}, to which its slot points" in found[1]
        found = outcome(lambda: keyed(store, 250))
        assert by_slow_path(store, lambda: keyed(store, 250)) == found
        assert keyed(store, COUNT + 5) == []  # whose slot leads nowhere


def test_a_search_by_time_is_right_or_names_what_is_missing(
    tmp_path: Path, store: MessageStore
) -> None:
    with store:
        times = [
            message.store_timestamp for message in store.get_message("t", 0, 0, COUNT).messages()
        ]
        while len(times) < COUNT:
            more = store.get_message("t", 0, len(times), COUNT).messages()
            times += [message.store_timestamp for message in more]
        right = {time: bisect_left(times, time) for time in times}
        for _ in range(8):
            for time, offset in right.items():
                assert store.offset_by_time("t", 0, time) == offset
        path = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        queues, errors = components_of(store).queues, 0
        assert isinstance(queues, FileConsumeQueueStore)
        for size in (20 * 290, 20 * 250 + 7, 4096 + 900, 4000, 2000, 500):
            os.truncate(path, size)
            queues._table.simple["t"][0].generation += 1  # forgets the times that it has read
            for time, offset in right.items():
                found = outcome(partial(store.offset_by_time, "t", 0, time))
                assert found == offset or truncated(found), (size, time, found)
                errors += found != offset
                assert by_slow_path(
                    store, partial(store.offset_by_time, "t", 0, time)
                ) == found or truncated(found)
        assert errors


def test_a_record_that_was_cut_is_left_out_whatever_is_pulled_after_it(tmp_path: Path) -> None:
    """Units of a damaged queue may be in any order: the last one read may have its whole record."""
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        for size in (1000, 1000, 3000):
            assert store.put_message(Message("t", b"x" * size, 0, {"TAGS": "a"})).ok
        store.flush()
        whole = [bytes(record) for record in store.get_message("t", 0, 0, 3).records]
        assert len(whole) == 3
        queue = tmp_path / "consumequeue" / "t" / "0" / f"{0:020d}"
        with queue.open("r+b") as file:
            second, third = os.pread(file.fileno(), 20, 20), os.pread(file.fileno(), 20, 40)
            os.pwrite(file.fileno(), third + second, 20)
        os.truncate(tmp_path / "commitlog" / f"{0:020d}", 4096 + 100)
        found = store.get_message("t", 0, 0, 3)
        assert [bytes(record) for record in found.records] == whole[:2]
        assert [damaged.queue_offset for damaged in found.damaged] == [1]
