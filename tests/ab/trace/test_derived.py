"""Derived traces: of the store's own queues, from a seed; how they are timed."""

import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cqstore.ab.measuring.histograms import histogram, percentiles
from cqstore.ab.stores.store_survey import StoreSurvey, survey
from cqstore.ab.trace import derived
from cqstore.ab.trace.operations import MaxOffset, Operation, Pull, Put, TimeSearch
from cqstore.ab.workloads.base import Setting
from cqstore.ab.workloads.reads import READS, due
from cqstore.ab.workloads.timing import BLOCK, digests, run_closed, run_open
from cqstore.store.errors import StoreClosedError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import GetMessageStatus
from tests.ab.made_store import CONFIG, make_varied_store

COUNT = 3_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("derived") / "s"
    make_varied_store(folder)
    return folder


@pytest.fixture(scope="module")
def found(root: Path) -> StoreSurvey:
    return survey(root, CONFIG, 1)


@pytest.mark.parametrize("reads", READS, ids=[each.name for each in READS])
def test_a_trace_follows_from_the_seed_alone(found: StoreSurvey, reads: object) -> None:
    def derive(seed: int) -> list[Operation]:
        made: list[Operation] = reads.derive(found, np.random.default_rng(seed), 200)  # type: ignore[attr-defined]
        return made

    assert derive(1) == derive(1)
    assert len(derive(1)) == 200
    if reads is not READS[-1]:  # a listing of all has nothing to draw
        assert derive(1) != derive(2)


def test_hot_queues_come_as_often_as_they_have_messages(found: StoreSurvey) -> None:
    draw = np.random.default_rng(3)
    requested = Counter(
        (each.topic, each.queue_id)
        for each in derived.random_pulls(found, draw, COUNT)
        if isinstance(each, Pull)
    )
    lengths = dict(zip(found.keys, (found.high - found.low).tolist(), strict=True))
    for key in found.keys:
        expected = COUNT * lengths[key] / sum(lengths.values())
        assert abs(requested[key] - expected) < 6 * expected**0.5 + 3, key


def test_pulls_and_searches_stay_within_what_there_is(found: StoreSurvey) -> None:
    ends = dict(zip(found.keys, zip(found.low, found.high, strict=True), strict=True))
    for kind in ("tail-pull", "catch-up-pull", "random-pull", "filtered-pull", "time-search"):
        for each in derived.KINDS[kind](found, np.random.default_rng(4), COUNT):
            if isinstance(each, Pull):
                low, high = ends[each.topic, each.queue_id]  # type: ignore[index]
                assert low <= each.offset <= high
                assert each.offset < high or kind == "tail-pull"
            else:
                assert isinstance(each, TimeSearch)
                assert found.times[0] <= each.timestamp <= found.times[1]


def test_a_catch_up_reads_on_where_it_was(found: StoreSurvey) -> None:
    pulls = derived.catch_up_pulls(found, np.random.default_rng(5), 50)
    steps = Counter[bool]()
    for one, two in pairwise(pulls):
        assert isinstance(one, Pull)
        assert isinstance(two, Pull)
        if (one.topic, one.queue_id) == (two.topic, two.queue_id):
            steps[two.offset == one.offset + 32 or two.offset <= one.offset] += 1
    assert steps[False] == 0 < steps[True]


def test_a_filtered_pull_gets_about_one_in_a_hundred(found: StoreSurvey, root: Path) -> None:
    pulls = derived.filtered_pulls(found, np.random.default_rng(6), 200)
    got = passed = 0
    with MessageStore.open(root, CONFIG, read_only=True) as store:
        for each in pulls:
            result = each.bind(store)()
            assert result.status in {  # type: ignore[attr-defined]
                GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE,
            }  # fmt: skip
            got += len(result.records)  # type: ignore[attr-defined]
            passed += result.next_begin_offset - each.offset  # type: ignore[attr-defined,union-attr]
    assert 0.003 < got / passed < 0.03


def test_a_mixture_has_the_parts_that_were_asked_for(found: StoreSurvey) -> None:
    operations = derived.mixed({"put": 20, "tail-pull": 60, "offsets": 20})(
        found, np.random.default_rng(7), 1000
    )
    kinds = Counter(type(each).__name__ for each in operations)
    assert (kinds["Put"], kinds["Pull"]) == (200, 600)
    assert kinds["MinOffset"] + kinds["MaxOffset"] == 200
    assert {each.topic for each in operations if isinstance(each, Put)} == {derived.MIXED_TOPIC}
    assert {type(each) for each in operations[:40]} >= {Put, Pull}


# ---- timing


class Counting:
    """A store whose operations spin as long as they are told."""

    def __init__(self, spins_ms: dict[int, float]) -> None:
        self.requested, self._spins_ms = 0, spins_ms

    def max_offset(self, topic: str, queue_id: int) -> int:
        end = time.perf_counter() + self._spins_ms.get(self.requested, 0) / 1e3
        self.requested += 1
        while time.perf_counter() < end:
            pass
        if topic == "closed":
            raise StoreClosedError("the store is closed", path=Path("/some/where"))
        return self.requested


def requested(count: int, topic: str = "t") -> list[Operation]:
    return [MaxOffset(topic=topic) for _ in range(count)]


def test_who_waits_for_a_stall_has_waited_since_it_was_due() -> None:
    store = Counting({2: 60.0})
    moments = [number * 0.001 for number in range(8)]
    ran = run_open(requested(8), moments, store)  # type: ignore[arg-type]
    assert ran.service[2] >= 60e6
    for behind in range(3, 8):
        assert ran.intended[behind] >= 60e6 - (behind - 2) * 1e6
    assert min(ran.service[3:]) < 30e6
    assert ran.answers == [str(number) for number in range(1, 9)]


def test_a_closed_loop_times_its_operations_and_not_the_telling() -> None:
    store = Counting({0: 20.0})
    ran = run_closed(requested(2 * BLOCK + 5), store)  # type: ignore[arg-type]
    assert len(ran.service) == len(ran.answers) == ran.items == 2 * BLOCK + 5
    assert ran.service[0] >= 20e6
    assert ran.spent.seconds >= sum(ran.service) / 1e9
    assert len(digests(ran.answers)) == 3


def test_a_fault_is_an_answer_without_the_path_of_a_side() -> None:
    ran = run_closed(requested(1, "closed"), Counting({}))  # type: ignore[arg-type]
    assert ran.answers == ["StoreClosedError: the store is closed"]
    assert ran.items == 0


def test_one_other_answer_changes_the_digest_of_its_block_alone() -> None:
    answers = [str(number) for number in range(3 * BLOCK)]
    before = digests(answers)
    answers[BLOCK + 7] = "x"
    after = digests(answers)
    assert [one == two for one, two in zip(before, after, strict=True)] == [True, False, True]


def test_a_histogram_holds_each_latency_to_three_digits() -> None:
    nanoseconds = [0, 5, 1234, 98_765, 7_654_321, 10**13] * 3
    made = histogram(nanoseconds)
    assert made.get_total_count() == len(nanoseconds)
    assert made.get_value_at_percentile(60) == pytest.approx(98_765, rel=2e-3)
    assert percentiles([*range(1, 1001)]) == {"p50": 501, "p99": 991, "p99.9": 1000, "max": 1000}
    assert percentiles([]) == {}


def test_operations_are_due_by_a_rate_or_by_the_times_of_the_trace() -> None:
    operations: list[Operation] = [
        MaxOffset(topic="t", at=5.0), MaxOffset(topic="t"), MaxOffset(topic="t", at=7.0),
        MaxOffset(topic="t", at=5.0), MaxOffset(topic="t", at=6.0),
    ]  # fmt: skip
    assert due(operations, Setting(rate=2.0)) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert due(operations, Setting(speed=2.0)) == [0.0, 0.0, 1.0, 1.0, 1.5]
