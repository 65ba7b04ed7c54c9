"""The bounded cache of queue states, against a dict, and what it weighs."""

import tracemalloc

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cq_rocksdb.keys import queue_prefix
from cq_rocksdb.state_cache import StateCache

PREFIXES = [queue_prefix(topic, number) for topic in ("a", "aa", "b") for number in range(4)]
prefixes = st.sampled_from(PREFIXES)
puts = st.tuples(st.just("put"), st.lists(prefixes, min_size=1, max_size=8))
gets = st.tuples(st.just("get"), st.lists(prefixes, min_size=1, max_size=3))
drops = st.tuples(st.just("drop"), st.lists(prefixes, max_size=3))
clears = st.tuples(st.just("clear"), st.just(list[bytes]()))


@given(st.integers(1, 6) | st.just(12), st.lists(puts | gets | drops | clears, max_size=40))
def test_what_is_found_is_what_was_put_last(
    capacity: int, steps: list[tuple[str, list[bytes]]]
) -> None:
    cache, model, count = StateCache(capacity), dict[bytes, list[int]](), 0
    for kind, wanted in steps:
        if kind == "put":
            unique = list(dict.fromkeys(wanted))
            rows = np.arange(count, count + 4 * len(unique)).reshape(-1, 4)
            count += 4 * len(unique)
            if len(unique) == 1:
                cache.put_one(unique[0], rows[0].tolist())
            cache.put(unique, rows)
            model.update(zip(unique, rows.tolist(), strict=True))
            if capacity >= len(PREFIXES):
                assert not len(cache.find(unique)[1])
        elif kind == "drop":
            for prefix in wanted:
                cache.discard(prefix)
                model.pop(prefix, None)
        elif kind == "clear":
            cache.clear()
            model.clear()
        else:
            rows, missing = cache.find(wanted)
            there = set(range(len(wanted))) - set(missing.tolist())
            assert all(rows[at].tolist() == model[wanted[at]] for at in there)
        assert len(cache) <= capacity
        for prefix in PREFIXES:
            found = cache.get(prefix)
            assert found is None or found == model[prefix]
    assert len(cache) == sum(cache.get(prefix) is not None for prefix in PREFIXES)


def test_a_put_of_more_queues_than_fit_leaves_no_old_row() -> None:
    cache = StateCache(3)
    cache.put(PREFIXES[:3], np.zeros((3, 4), np.int64))
    assert cache.get(PREFIXES[0])
    cache.put([*PREFIXES[:1], *PREFIXES[3:4], *PREFIXES[1:3]], np.ones((4, 4), np.int64))
    for prefix in PREFIXES:
        assert cache.get(prefix) in (None, [1, 1, 1, 1])


def test_queues_that_are_used_outlive_those_that_are_not() -> None:
    cache = StateCache(100)
    hot = PREFIXES[:10]
    cache.put(hot, np.zeros((10, 4), np.int64))
    for number in range(1000):
        cache.put([queue_prefix("cold", number)], np.zeros((1, 4), np.int64))
        if number % 20 == 0:
            assert not len(cache.find(hot)[1])


def test_a_hot_queue_weighs_less_than_200_bytes_and_none_weigh_nothing() -> None:
    names = [f"a_topic_of_19_c{number:04d}" for number in range(2_500)]
    assert {len(name) for name in names} == {19}
    tracemalloc.start()
    empty = StateCache(100_000)
    assert tracemalloc.get_traced_memory()[0] < 2_000
    wanted = [queue_prefix(name, queue_id) for name in names for queue_id in range(40)]
    before = tracemalloc.get_traced_memory()[0]
    for first in range(0, len(wanted), 1_000):
        empty.put(wanted[first : first + 1_000], np.zeros((1_000, 4), np.int64))
    own = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    keys = sum(len(prefix) + 33 for prefix in wanted)  # bytes objects, held by the cache alone
    assert (own + keys) / len(wanted) < 200


def test_a_full_cache_holds_all_that_was_put() -> None:
    for capacity in (1, len(PREFIXES)):
        cache = StateCache(capacity)
        held = PREFIXES[:capacity]
        rows = np.arange(4 * capacity).reshape(-1, 4)
        cache.put(held, rows)
        found, missing = cache.find(held)
        assert (found.tolist(), missing.tolist()) == (rows.tolist(), [])
        assert [cache.last_offset(prefix) for prefix in held] == rows[:, 1].tolist()


def test_the_idle_queues_that_the_hand_meets_first_make_room() -> None:
    count = 10_000  # more than the hand passes in one step
    cache = StateCache(count)
    held = [queue_prefix("t", number) for number in range(count)]
    cache.put(held, np.zeros((count, 4), np.int64))
    idle = [7_000, 7_001, 9_999]
    cache.find([prefix for number, prefix in enumerate(held) if number not in idle])
    cache.put([queue_prefix("new", 1), queue_prefix("new", 2)], np.ones((2, 4), np.int64))
    assert [number for number in idle if cache.last_offset(held[number]) is None] == idle[:2]
    assert len(cache) == count
    cache.put([queue_prefix("new", 3)], np.ones((1, 4), np.int64))
    gone = [number for number, prefix in enumerate(held) if cache.last_offset(prefix) is None]
    assert gone == [0, *idle[:2]], "the others had been used, 0 not since the hand passed it"
