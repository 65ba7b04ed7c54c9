"""The bounded cache of queue states, against a dict, and what it weighs."""

import tracemalloc
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.cq_rocksdb.keys import queue_prefix
from cqstore.cq_rocksdb.queues.state_cache import StateCache

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


def test_a_hot_queue_weighs_less_than_110_bytes_and_none_weigh_nothing() -> None:
    names = [f"a_topic_of_19_c{number:04d}" for number in range(2_500)]
    assert {len(name) for name in names} == {19}
    tracemalloc.start()
    empty = StateCache(100_000)
    filters = [tracemalloc.Filter(inclusive=True, filename_pattern=__file__)]  # no other thread's
    found = tracemalloc.take_snapshot().filter_traces(filters)
    assert sum(each.size for each in found.statistics("filename")) < 2_000
    wanted = [queue_prefix(name, queue_id) for name in names for queue_id in range(40)]
    before = tracemalloc.get_traced_memory()[0]
    for first in range(0, len(wanted), 1_000):
        empty.put(wanted[first : first + 1_000], np.zeros((1_000, 4), np.int64))
    own = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert own / len(wanted) < 110  # without what malloc itself takes for each


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


@given(
    st.integers(1, 5),
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "last", "find"]), st.sampled_from(PREFIXES)),
        max_size=60,
    ),
)
def test_who_has_to_go_is_the_first_that_was_not_used_since_the_hand_came_by(
    capacity: int, steps: list[tuple[str, bytes]]
) -> None:
    """Against the clock as the books have it: slots in a ring, a mark on each, and a hand."""
    cache = StateCache(capacity)
    ring: list[bytes] = []
    marked: set[bytes] = set()
    hand = 0
    for count, (what, prefix) in enumerate(steps):
        if what == "put":
            if prefix not in ring:
                if len(ring) < capacity:
                    ring.insert(0, prefix)  # the last slot is taken first
                else:
                    while ring[hand] in marked:
                        marked.discard(ring[hand])
                        hand = (hand + 1) % capacity
                    ring[hand] = prefix
                    hand = (hand + 1) % capacity
            row = [count, count + 1, count + 2, count + 3]
            cache.put_one(prefix, row) if count % 2 else cache.put([prefix], np.array([row]))
        else:
            if what == "get":
                found = cache.get(prefix) is not None
            elif what == "last":
                found = cache.last_offset(prefix) is not None
            else:
                found = not len(cache.find([prefix])[1])
            assert found == (prefix in ring)
            if found:
                marked.add(prefix)
    assert {prefix for prefix in PREFIXES if cache.get(prefix)} == set(ring)


def test_there_is_room_for_as_many_as_was_said_however_they_come() -> None:
    capacity = 3_000  # more than is taken at once
    cache = StateCache(capacity)
    held = [queue_prefix("t", number) for number in range(capacity)]
    for number, prefix in enumerate(held[:1_500]):
        cache.put_one(prefix, [number] * 4)
    for first in (1_500, 1_501, 2_000, 2_999):
        last = {1_500: 1_501, 1_501: 2_000, 2_000: 2_999, 2_999: 3_000}[first]
        rows = np.repeat(np.arange(first, last), 4).reshape(-1, 4)
        cache.put(held[first:last], rows)
    rows, missing = cache.find(held)
    assert not len(missing)
    assert rows[:, 3].tolist() == list(range(capacity))
    cache.clear()
    assert len(cache) == 0
    cache.put(held, rows)
    assert [cache.last_offset(prefix) for prefix in held] == list(range(capacity))
    cache.set_first(held[7], 70, 71)
    cache.set_first(queue_prefix("unused", 0), 1, 1)
    assert cache.get(held[7]) == [7, 7, 70, 71]


def test_discards_leave_the_way_to_all_others() -> None:
    """Thousands of queues: many share a place of the index, and move up as others leave."""
    cache, model, random = StateCache(3_000), dict[bytes, list[int]](), Random(7)
    held = [queue_prefix("t" * (1 + number % 9), number) for number in range(4_000)]
    for count in range(12_000):
        prefix = random.choice(held)
        if prefix in model:
            cache.discard(prefix)
            del model[prefix]
        elif len(model) < cache.capacity:
            model[prefix] = [count] * 4
            cache.put_one(prefix, model[prefix])
        if count % 500 == 0:
            assert [cache.get(prefix) for prefix in held] == [*map(model.get, held)]
    assert len(cache) == len(model)


def test_a_queue_that_is_named_twice_has_its_last_row() -> None:
    cache = StateCache(5)
    cache.put([PREFIXES[0], PREFIXES[1], PREFIXES[0]], np.arange(12).reshape(3, 4))
    assert len(cache) == 2
    assert cache.get(PREFIXES[0]) == [8, 9, 10, 11]
    for rows in (np.zeros((2, 4), np.int64), np.zeros((1, 3), np.int64)):
        with pytest.raises(ValueError, match="one row of four columns"):
            cache.put(PREFIXES[:1], rows)
        with pytest.raises(ValueError, match="one row of four columns"):
            cache.find_into(PREFIXES[:1], rows)
    with pytest.raises(TypeError):
        cache.put(["t"], np.zeros((1, 4), np.int64))  # type: ignore[list-item]
    with pytest.raises(ValueError, match="capacity must be at least 1"):
        StateCache(0)
    assert len(cache) == 2
