"""What a check knows of each queue, packed, against a dict; and what it weighs."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.store.service.maintenance import queue_incarnations
from cqstore.store.service.maintenance.queue_incarnations import QueueIncarnations, hash_of

KEYS = [(topic, number) for topic in ("a", "b", "主题") for number in range(3)]
places = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 5)), max_size=60)


@given(places, st.integers(1, 20))
def test_lives_are_those_of_a_dict(records: list[tuple[tuple[str, int], int]], chunk: int) -> None:
    expected: dict[tuple[str, int], tuple[int, int, int]] = {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(queue_incarnations, "_CHUNK", chunk)
        incarnations = QueueIncarnations()
        for phy_offset, (key, offset) in enumerate(records):
            first, last, begin = expected.get(key, (0, offset, 0))
            if offset <= last:
                first, begin = offset, phy_offset
            expected[key] = first, offset, begin
            incarnations.note(key, offset, phy_offset)
        requested = KEYS[::2]
        found = [tuple(each) if each else None for each in incarnations.lookup(requested)]
        assert found == [expected[key][:2] if key in expected else None for key in requested]
        rest = sorted((expected[key][2], hash_of(key)) for key in KEYS[1::2] if key in expected)
        assert [(phy, hashed) for hashed, phy in incarnations.unchecked()] == rest


def test_a_queue_weighs_33_bytes() -> None:
    incarnations, most = QueueIncarnations(), 200_000
    incarnations.note(("warm", 0), 0, 0)
    incarnations.lookup([("warm", 0)])
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(most):
        incarnations.note(("a_topic_of_some_length", number), 0, number)
    incarnations.lookup([])
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept < 34 * most
