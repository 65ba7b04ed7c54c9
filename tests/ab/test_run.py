"""Whole comparisons: equal sides are equal, wrong ones are found and named, nothing is changed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Outcome
from cqstore.ab.results.result import Cache
from cqstore.ab.run.comparison import Run
from cqstore.ab.run.rounds import Effort
from cqstore.ab.trace.operation_lines import StoreOp, first_line, operation_line
from cqstore.ab.workloads import workloads
from tests.ab import wrong_backends
from tests.ab.made_store import make_varied_store
from tests.ab.running import command, compare, options, result_of, workload
from tests.kit.tree import unchanged
from tools.bench.sample_store import make_store

pytestmark = pytest.mark.long


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends that are wrong on purpose, known by their names."""
    wrong_backends.install(tmp_path / "installed", monkeypatch)


def test_every_workload_runs_on_equal_sides_and_nothing_of_the_store_is_changed(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    make_varied_store(root)
    with unchanged(root):
        done = command(
            root, "--side", "file", "--side", "file", "--rounds", "3", "--turn-seconds", "0.004"
        )
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["result.html", "result.json", "store"]
    assert (tmp_path / "result.html").read_text().startswith("<!DOCTYPE html>")
    assert f"cqstore: result written to {tmp_path / 'result.json'}\n" in done.stderr
    assert f"cqstore: HTML report written to {tmp_path / 'result.html'}\n" in done.stderr
    assert "3 sides (file; file (2); file (twin)), 16 workloads, 3 rounds: about" in done.stderr
    found = result_of(root)
    assert [side.twin_of for side in found.sides] == [None, None, "file"]
    assert [each.name for each in found.workloads] == [
        name for name in workloads() if name != "trace"
    ]
    assert found.proof is not None
    assert (found.proof.queues, found.proof.units) == (found.store.queues, found.store.units)
    names = [side.name for side in found.sides]
    for each in found.workloads:
        assert each.not_measured == ""
        assert each.answers.different == 0 < each.answers.compared
        turns = [turn.turn for turn in each.rounds]
        assert turns == list(range(len(turns)))
        for number in {turn.number for turn in each.rounds}:
            order = [
                turn.side
                for turn in each.rounds
                if turn.number == number and not (number and turn.warm_up)
            ]
            assert sorted(order) == sorted(names * (len(order) // 3))
            assert len(order) == 3 or order == order[::-1]
        for turn in each.rounds:
            assert turn.operations > 0 < turn.seconds
    assert all(side.footprint and side.footprint.files for side in found.sides)
    assert judge(found).answers.status == "same"


def test_the_backends_answer_alike_on_a_store_of_rocketmqs(golden: Callable[[str], Path]) -> None:
    root = golden("wide-default")
    with unchanged(root):
        found = compare(
            root, "tail-pull", "list-all", "restart", sides=["files", "rocksdb"],
            cache=Cache.DROPPED,
        )  # fmt: skip
    assert len(found.workloads) == 3
    assert not [each.answers.first for each in found.workloads if each.answers.different]
    assert found.sides[1].footprint
    assert any("rocksdb" in name for name in found.machine.versions)


@pytest.mark.usefixtures("wrong")
def test_a_side_that_answers_one_pull_in_a_thousand_wrongly_is_found_and_named(
    tmp_path: Path,
) -> None:
    root = tmp_path / "store"
    make_store(root, 4_000, 24)
    words = [
        "--side",
        "file",
        "--side",
        "lying",
        "--workload",
        "random-pull",
        "--workload",
        "mixed",
    ]
    done = command(root, *words, "--rounds", "40", "--turn-seconds", "0.02", code=1)
    found = result_of(root)
    (one,) = found.workloads  # what comes behind is not measured any more
    first = one.answers.first[0]
    assert (one.name, first.operation["op"]) == ("random-pull", "pull")
    right, lie = first.answers["file"], first.answers["lying"]
    assert right.split(",")[0] == lie.split(",")[0] == "FOUND"
    assert right != lie
    assert one.answers.different < one.answers.compared / 100
    assert str(first.operation["topic"]) in done.stdout
    assert judge(found).answers.status == "different"


@pytest.mark.usefixtures("wrong")
def test_a_side_that_loses_a_unit_is_found_before_anything_is_timed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 4_000, 24)
    found = compare(root, "tail-pull", sides=["file", "losing"])
    (one,) = found.workloads
    queue, _ = wrong_backends.LOST
    first = one.answers.first[0]
    assert first.operation["topic"] == queue.topic
    assert first.operation["queueId"] == queue.queue_id
    assert "losing" in first.answers
    assert found.proof is None
    assert not one.rounds


@pytest.mark.quiet
@pytest.mark.usefixtures("wrong")
def test_a_side_that_takes_a_tenth_longer_is_found(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 4_000, 400)
    (tmp_path / "trace").write_text('{"op":"listQueues"}\n')
    found = compare(
        root,
        trace=tmp_path / "trace",
        sides=["other", "slow"],
        effort=Effort(16, 0.1),  # of some thousand operations
    )
    (judged,) = judge(found).workloads
    reported = [judged.of("slow", figure) for figure in ("throughput", "cpu", "service_p50")]
    outcomes = [each.outcome for each in reported if each is not None]
    assert len(outcomes) == 3
    assert Outcome.WORSE in outcomes, reported
    assert Outcome.BETTER not in outcomes, reported


def test_a_given_trace_is_run_at_its_own_times_or_at_a_rate(tmp_path: Path) -> None:
    root, trace = tmp_path / "store", tmp_path / "trace.jsonl"
    make_varied_store(root)
    lines = [
        operation_line(StoreOp.PULL, ("hot", 1, number % 200, 32, None), number / 50)
        for number in range(150)
    ]
    lines += [operation_line(StoreOp.PUT, ("hot", 1, 100, "often"), 3.0)]
    lines += [operation_line(StoreOp.QUERY, ("hot", "key", None, None, None), 3.0)]
    trace.write_bytes(b"".join(lines))
    fast = compare(root, trace=trace, speed=10.0)
    (one,) = fast.workloads
    assert (one.name, one.mode) == ("trace", "open")
    assert one.offered == pytest.approx(500, rel=0.1)
    assert set(one.intended) == set(one.service) == {side.name for side in fast.sides}
    assert fast.trace is not None
    assert (fast.trace.origin, fast.trace.operations) == ("given", 151)
    assert fast.not_measured == [
        "1 queries by key in the trace: the index answers them, the same on every side."
    ]
    paced = workload(compare(root, "offsets", rate=2000.0), "offsets")
    assert paced.offered == pytest.approx(2000, rel=0.01)
    trace.write_bytes(b"".join([first_line(1_790_000_000_000), *lines]))
    recorded = compare(root, trace=trace)
    assert recorded.trace is not None
    assert (recorded.trace.origin, recorded.trace.digest) == ("recorded", fast.trace.digest)
    closed = workload(recorded, "trace")
    assert (closed.mode, closed.offered, closed.intended) == ("closed", None, {})


def test_points_for_a_projection_are_measured_at_several_numbers_of_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_store(root, 600, 24)
    found = compare(root, "offsets", sides=["file", "rocksdb"], project=1_500)
    assert [(point.side, point.queues) for point in found.points] == [
        ("file", 250), ("file", 1000), ("rocksdb", 250), ("rocksdb", 1000),
    ]  # fmt: skip
    files = [point.footprint.files for point in found.points if point.side == "file"]
    assert files[0] >= 250
    assert files[1] >= 1000
    assert found.project_to == 1_500


def test_pulls_end_where_those_of_the_original_do(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_varied_store(root)  # files of 500 units
    given = ["file", "rocksdb,mappedFileSizeConsumeQueue=2000"]
    run = Run(options(root, "catch-up-pull", sides=given))
    run.prepare()
    assert [spec.config.units_per_file for spec in run._specs] == [500, 100, 500]
    found = compare(root, "catch-up-pull", sides=["file", "rocksdb"])
    assert not workload(found, "catch-up-pull").answers.different
