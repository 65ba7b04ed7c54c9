"""The cache of queue states after an exception between two instructions: a miss, never wrong."""

import random
from collections.abc import Callable
from contextlib import suppress

import numpy as np
import pytest

from cq_rocksdb.keys import queue_prefix
from cq_rocksdb.state_cache import StateCache
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time

PREFIXES = [queue_prefix("t", number) for number in range(12)]
ROWS = {prefix: [at, at + 1, at + 2, at + 3] for at, prefix in enumerate(PREFIXES)}
"""What the database says: nothing else is ever put into the cache."""
SECONDS = 20
ASK = 6
"""The queue that the steps are about, not here yet."""


def row_of(*numbers: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array([ROWS[PREFIXES[number]] for number in numbers], np.int64)


STEPS: dict[str, Callable[[StateCache], object]] = {
    "one": lambda cache: cache.put_one(PREFIXES[ASK], ROWS[PREFIXES[ASK]]),
    "many": lambda cache: cache.put(
        [PREFIXES[number] for number in (ASK, 0, ASK + 1)], row_of(ASK, 0, ASK + 1)
    ),
    "all": lambda cache: cache.put(PREFIXES, row_of(*range(len(PREFIXES)))),
    "first": lambda cache: cache.set_first(PREFIXES[0], *ROWS[PREFIXES[0]][2:]),
    "discard": lambda cache: cache.discard(PREFIXES[1]),
    "clear": StateCache.clear,
    "get": lambda cache: cache.get(PREFIXES[0]),
    "find": lambda cache: cache.find(PREFIXES),
}


def filled(capacity: int) -> StateCache:
    """Return a cache that has six queues, as many as there are slots or than fit."""
    cache = StateCache(capacity)
    for number in range(ASK):
        cache.put_one(PREFIXES[number], ROWS[PREFIXES[number]])
        if number % 2:
            cache.get(PREFIXES[number])
    return cache


def compare(cache: StateCache) -> None:
    for prefix in PREFIXES:
        assert cache.get(prefix) in (None, ROWS[prefix])
    last_is_right(cache)
    found_is_right(cache)
    assert len(cache) <= cache.capacity


def count_is_right(cache: StateCache) -> None:
    told = len(cache)
    assert told == sum(cache.get(prefix) is not None for prefix in PREFIXES)


def last_is_right(cache: StateCache) -> None:
    for prefix in PREFIXES:
        assert cache.last_offset(prefix) in (None, ROWS[prefix][1])


def found_is_right(cache: StateCache) -> None:
    rows, missing = cache.find(PREFIXES)
    for at in {*range(len(PREFIXES))} - {*missing.tolist()}:
        assert rows[at].tolist() == ROWS[PREFIXES[at]]


FIRST: list[Callable[[StateCache], object]] = [
    *STEPS.values(),
    count_is_right,
    last_is_right,
    found_is_right,
]
"""What may be the first call behind an interrupt: each finds by itself that a change was cut."""


def go_on(cache: StateCache, random_steps: random.Random) -> None:
    compare(cache)
    for prefix in random_steps.choices(PREFIXES, k=20):
        if cache.get(prefix) is None:
            cache.put_one(prefix, ROWS[prefix])
        assert cache.get(prefix) == ROWS[prefix]
        compare(cache)


@pytest.mark.parametrize("capacity", [1, 3, 6, 7, 100])
@pytest.mark.parametrize("step", STEPS)
def test_an_interrupt_anywhere_leaves_the_cache_whole(
    step: str, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cq_rocksdb.state_cache._FIRST_SLOTS", 2)
    places = run_interrupted(lambda: STEPS[step](filled(capacity)))
    assert places
    random_steps = random.Random(places)
    for number in range(1, places + 1):
        cache = filled(capacity)
        with suppress(Interrupted):
            run_interrupted(lambda cache=cache: STEPS[step](cache), number)  # type: ignore[misc]
        with in_time(SECONDS):
            FIRST[number % len(FIRST)](cache)
            go_on(cache, random_steps)
