"""Latencies: from histograms made by hand, and withheld where they would say nothing."""

import pytest
from hdrh.histogram import HdrHistogram

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Outcome
from cqstore.ab.judging.latencies import curve, histogram, merged, withheld
from cqstore.ab.results.result import Result, WorkloadFigures
from cqstore.store.errors import StoreConfigError
from tests.ab.made_result import Truth, made_result


def filled(counts: dict[int, int]) -> str:
    made = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in counts.items():
        made.record_value(value, count)
    text: bytes = made.encode()
    return text.decode()


def workload(**sides: str) -> WorkloadFigures:
    return WorkloadFigures(name="tail-pull", what="a pull", item="messages", service=sides)


def test_percentiles_are_those_of_the_histogram() -> None:
    work = workload(files=filled({1_000: 980, 50_000: 15, 2_000_000: 5}))
    assert merged(work, "files", "service_p50") == pytest.approx(1e-6, rel=0.001)
    assert merged(work, "files", "service_p99") == pytest.approx(50e-6, rel=0.001)
    assert merged(work, "files", "service_p99.9") == pytest.approx(2e-3, rel=0.001)
    assert merged(work, "files", "service_max") == pytest.approx(2e-3, rel=0.001)
    assert merged(work, "rocksdb", "service_p50") is None
    assert merged(work, "files", "intended_p50") is None


def test_a_percentile_above_which_no_operation_lies_is_not_told() -> None:
    work = workload(files=filled({1_000: 999}), rocksdb=filled({1_000: 1_000}))
    assert merged(work, "files", "service_p99.9") is None
    assert merged(work, "rocksdb", "service_p99.9") is not None
    assert curve(work, "files")[-1][0] == 99.5
    assert curve(work, "rocksdb")[-1][0] == 99.9


@pytest.mark.parametrize(
    "text", ["no histogram", "HISTFAAAAB542pNpmSzMwMDAxAABzFCaEUoz2X+AsQA/awMC", "AAAA"]
)
def test_a_histogram_that_is_none_is_refused_by_name(text: str) -> None:
    with pytest.raises(StoreConfigError, match="the histogram of files at tail-pull is not valid"):
        histogram(workload(files=text), "files")


# ---- open loop


def open_loop(offered: float, speed: float = 1.0) -> Result:
    """Return a result whose reference reaches 1,000 operations a second."""
    truth = Truth(speed={"rocksdb": speed}, noise=0.005, drift=0.005)
    result = made_result(1, truth, workloads=["tail-pull"])
    (work,) = result.workloads
    turns = [
        turn.model_copy(
            update={
                "seconds": turn.operations / 1_000 / (speed if turn.side == "rocksdb" else 1),
                "intended_ns": turn.service_ns,
            }
        )
        for turn in work.rounds
    ]
    changed = work.model_copy(
        update={"mode": "open", "offered": offered, "rounds": turns, "intended": work.service}
    )
    return result.model_copy(update={"workloads": [changed]})


def test_an_open_loop_is_judged_by_its_p99_from_the_due_time() -> None:
    judgement = judge(open_loop(1_000))
    (work,) = judgement.workloads
    assert (work.headline, work.withheld) == ("intended_p99", {})
    assert work.sentences[0].text.startswith(
        "No difference shown at tail-pull by p99 from the due time: rocksdb is "
    )


def test_a_side_that_cannot_do_what_is_offered_has_its_times_from_the_due_time_withheld() -> None:
    judgement = judge(open_loop(1_000, speed=0.7))
    (work,) = judgement.workloads
    assert list(work.withheld) == ["rocksdb"]
    assert "rocksdb reached 700 of 1,000 operations per second" in work.withheld["rocksdb"]
    found = work.of("rocksdb", "intended_p99")
    assert found is not None
    assert (found.outcome, found.value, found.ratio) == (Outcome.WITHHELD, None, None)
    assert found.reference is not None
    assert work.headline == "throughput"
    assert work.sentences[0].text.startswith("rocksdb is 0.70 times as fast as files")
    service = work.of("rocksdb", "service_p99")
    assert service is not None
    assert service.value is not None


@pytest.mark.parametrize(("offered", "reported"), [(1_019, False), (1_022, True)])
def test_the_share_that_must_be_reached_is_98_percent(offered: float, *, reported: bool) -> None:
    (work,) = open_loop(offered).workloads
    assert bool(withheld(work, "files")) is reported


def test_a_longer_p99_from_the_due_time_is_told() -> None:
    (work,) = judge(open_loop(600, speed=0.7)).workloads
    assert work.headline == "intended_p99"
    assert work.sentences[0].outcome is Outcome.WORSE
    assert work.sentences[0].text.startswith("rocksdb is 0.7")
    by = " times as fast as files at tail-pull by p99 from the due time (95 %: 0.7"
    assert by in work.sentences[0].text


def test_a_closed_loop_withholds_nothing() -> None:
    (work,) = open_loop(5_000).workloads
    assert withheld(work.model_copy(update={"mode": "closed"}), "files") == ""
