"""A full cache parts with single entries; a call that is cut short leaves nothing wrong."""

import random
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

import pytest

from cqstore.store.record import bounded_cache
from cqstore.store.record.bounded_cache import ENTRY_BYTES, BoundedCache
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.message import Message
from cqstore.store.settings.config import StoreConfig
from tests.kit.waiting import run_threads

if TYPE_CHECKING:
    from _typeshed import TraceFunction

ROOM = 1024
MOST = ROOM * (ENTRY_BYTES + 40)


def found_in_a_round(cache: BoundedCache[int, int], keys: range) -> int:
    """Ask for each key once and learn what is not there; return how many were."""
    found = 0
    for key in keys:
        if key in cache:
            assert cache[key] == -key
            found += 1
        else:
            assert cache.learn(key, -key, 10) == -key
    return found


def text_held(cache: BoundedCache[int, int]) -> int:
    return len(cache) * (ENTRY_BYTES + 40)


def test_keys_that_come_round_find_most_of_the_room_in_use() -> None:
    cache = BoundedCache[int, int](MOST)
    found_in_a_round(cache, range(2 * ROOM))
    for _ in range(10):
        assert found_in_a_round(cache, range(2 * ROOM)) > ROOM * 0.8
        assert ROOM * 0.9 < len(cache) <= ROOM


def test_what_is_no_longer_asked_for_makes_way() -> None:
    cache = BoundedCache[int, int](MOST)
    found_in_a_round(cache, range(ROOM))
    later = range(10 * ROOM, 10 * ROOM + ROOM // 2)
    rounds = 0
    while found_in_a_round(cache, later) < len(later):
        rounds += 1
        assert rounds < 20
    for number in range(20 * ROOM):
        cache.learn(-1 - number, 1 + number, 10)
    assert not any(key in cache for key in range(ROOM))


def test_entries_of_all_sizes_never_take_more_than_there_is() -> None:
    drawn = random.Random(7)
    cache, sizes = BoundedCache[int, int](MOST), dict[int, int]()
    largest = (MOST // 1024 - ENTRY_BYTES) // 4
    for key in range(50_000):
        sizes[key] = drawn.choice((0, 1, largest // 2, largest))
        cache.learn(key, -key, sizes[key])
        if key % 97 == 0:
            assert sum(ENTRY_BYTES + 4 * sizes[each] for each in cache) <= MOST
            assert all(value == -each for each, value in cache.items())


def test_a_call_that_is_cut_short_anywhere_leaves_right_entries_within_the_bound() -> None:
    class CutShortError(Exception):
        pass

    cache, key, cuts, left = BoundedCache[int, int](MOST), 0, 0, 0

    def step(frame: FrameType, event: str, _arg: object) -> "TraceFunction | None":
        nonlocal left
        if frame.f_code.co_filename != bounded_cache.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left == 0:
                raise CutShortError
        return step

    before = sys.gettrace()
    for turn in range(40 * ROOM):
        key += 1
        left = turn % 151 + 1 if turn % 7 == 0 and turn > ROOM - 200 else 0
        if not left:
            cache.learn(key, -key, 10)
        else:
            sys.settrace(step)
            try:
                cache.learn(key, -key, 10)
            except CutShortError:
                cuts += 1
            finally:
                sys.settrace(before)
        if turn % 50 == 0:
            assert all(value == -each for each, value in cache.items())
            assert text_held(cache) <= MOST
    assert cuts > ROOM
    for _ in range(ROOM):
        key += 1
        cache.learn(key, -key, 10)
    assert len(cache) > ROOM * 0.9, "what was cut short is not counted for ever"
    assert len(cache._sizes) < 1.1 * len(cache)


def test_threads_that_learn_at_once_keep_the_bound() -> None:
    cache = BoundedCache[int, int](MOST)
    failures: list[BaseException] = []

    def learn(first: int) -> None:
        try:
            for key in range(first, first + 30_000):
                cache.learn(key % 5000, -(key % 5000), 10)
        except BaseException as exc:  # noqa: BLE001 - shown by the test
            failures.append(exc)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=learn, args=(at * 1000,)) for at in range(4)]
        run_threads(threads)
    finally:
        sys.setswitchinterval(interval)
    assert failures == []
    assert all(value == -each for each, value in cache.items())
    assert ROOM * 0.8 < len(cache) < ROOM + 64


@pytest.mark.parametrize("size", [12, 60])
def test_twenty_thousand_topics_are_known(size: int) -> None:
    requested: list[str] = []
    rules = EncodingRules(StoreConfig(), requested.append)
    for _ in range(2):
        for number in range(20_000):
            rules.learnt(Message(f"{number:x}".ljust(size, "t"), b""))
    assert len(requested) == 20_000
