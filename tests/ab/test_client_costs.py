"""Costs of servers of the same client, from runs made by hand."""

import random

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Judgement, Outcome
from cqstore.ab.judging.result_changes import compare_results
from cqstore.ab.live.client_costs import RUN, WHAT, ClientTurn, load_limits, workloads
from cqstore.ab.live.server_worker import ServedLoad
from cqstore.ab.report.report_page import page
from cqstore.ab.results.result import Cache, Method, Result, Side
from tests.ab.made_result import made_machine, made_shape

SENT, RECEIVED = 2_000, 1_990
SIDES = ("file", "rocksdb", "file (twin)")


def load(**given: object) -> ServedLoad:
    fields: dict[str, object] = {
        "connections": 2, "messages_in": SENT, "messages_out": RECEIVED, "refused": 0,
        "cpu_seconds": 0.5, "read_bytes": 0, "written_bytes": SENT * 500, "backend_written": {},
        "pss_bytes": 50 << 20, "disk_bytes": SENT * 20,
    }  # fmt: skip
    return ServedLoad.model_validate(fields | given)


def runs(rounds: int, **of_rocksdb: float) -> list[ClientTurn]:
    """Make runs of three sides; the second takes so many times as much as the first."""
    draw, found = random.Random(1), []
    for number in range(rounds):
        for name in SIDES if number % 2 else reversed(SIDES):
            times = of_rocksdb if name == "rocksdb" else {}
            noise = draw.uniform(0.99, 1.01)
            usage = {
                field: base * noise * times.get(field, 1.0)
                for field, base in (("cpu_seconds", 0.5), ("pss_bytes", 50e6))
            }
            made = load(cpu_seconds=usage["cpu_seconds"], pss_bytes=int(usage["pss_bytes"]),
                        disk_bytes=int(SENT * 20 * times.get("disk_bytes", 1.0)))  # fmt: skip
            seconds = 3 * noise * times.get("seconds", 1.0)
            found.append(ClientTurn(number, name, seconds, made, 0.0, 0.0))
    return found


def result(turns: list[ClientTurn], command: str = "my-test {address}") -> Result:
    return Result(
        kind="clients", made="2026-11-29T00:00:00+00:00", command=["x"], machine=made_machine(),
        store=made_shape().model_copy(update={"root": command}),
        workloads=list(workloads(turns, "file")),
        sides=[
            Side(name=name, given=name.split()[0], backend=name.split()[0], options={},
                 log_shared_by="", build_seconds=0,
                 twin_of="file" if name == "file (twin)" else None)
            for name in SIDES
        ],
        method=Method.today(
            seed=1, rounds=9, warm_up="", cache=Cache.WARM, new_processes=True
        ),
        not_measured=list(load_limits(turns, "file")), seconds=100,
    )  # fmt: skip


def outcomes(judged: Judgement) -> dict[str, Outcome]:
    return {work.name: work.sentences[0].outcome for work in judged.workloads}


def with_load(turns: list[ClientTurn], at: int, **changes: object) -> list[ClientTurn]:
    changed = turns[at]._replace(load=load(**changes))
    return [*turns[:at], changed, *turns[at + 1 :]]


def test_each_cost_is_judged_by_its_own_figure() -> None:
    judged = judge(result(runs(9, cpu_seconds=0.5, pss_bytes=2.0, seconds=0.8, disk_bytes=1.5)))
    assert outcomes(judged) == {
        RUN: Outcome.BETTER, "cpu": Outcome.BETTER, "memory": Outcome.WORSE,
        "written": Outcome.SAME, "disk": Outcome.WORSE,
    }  # fmt: skip
    assert [each.headline for each in judged.workloads] == [
        "throughput", "cpu", "memory", "written", "disk",
    ]  # fmt: skip
    values = {
        (work.name, each.figure): (each.reference, each.value, each.ratio)
        for work in judged.workloads for each in work.comparisons if each.side == "rocksdb"
    }  # fmt: skip
    reference, value, ratio = values["disk", "disk"]
    assert (reference, value, ratio) == pytest.approx((20, 30, 1.5))
    reference, value, ratio = values[RUN, "throughput"]
    assert (reference, value, ratio) == pytest.approx((1330, 1662, 1.25), rel=0.02)
    reference, value, ratio = values["cpu", "cpu"]
    assert reference == pytest.approx(0.5 / (SENT + RECEIVED), rel=0.02)


def test_the_page_answers_which_backend_for_these_clients() -> None:
    found = result(runs(9, cpu_seconds=0.5))
    judged = judge(found)
    assert judged.banner.text.startswith("Recommended for these clients: rocksdb. It is better")
    assert judged.answers.sentence == "The load was the same: 35,910 operations compared."
    assert not any("Each side was one process" in note for note in judged.notes)
    text = page(found, judged)
    assert "my-test {address}" in text
    assert "with a server of each side in turn" in text
    assert f"{SENT:,} messages sent, {RECEIVED:,} received" in text


@pytest.mark.parametrize("changes", [{"messages_in": 1_970}, {"messages_out": 2_015}])
def test_a_side_with_another_load_decides_nothing(changes: dict[str, int]) -> None:
    turns = runs(9, cpu_seconds=0.5)
    at = next(at for at, each in enumerate(turns) if (each.number, each.side) == (4, "rocksdb"))
    judged = judge(result(with_load(turns, at, **changes)))
    assert judged.banner.text == "No verdict: the clients' loads differed."
    assert judged.banner.side is None
    assert judged.answers.sentence.startswith("The load differed from the reference's in 1 run:")
    (first,) = judged.answers.first
    assert first.operation == {"round": 4}
    assert first.answers["file"] == "2,000 messages sent, 1,990 received"
    assert set(outcomes(judged).values()) == {Outcome.NO_VERDICT}


def test_a_load_that_differs_by_less_is_reported() -> None:
    turns = runs(9)
    at = next(at for at, each in enumerate(turns) if each.side == "rocksdb")
    found = result(with_load(turns, at, messages_out=1_980, refused=3))
    assert judge(found).answers.status == "same"
    _, unequal, refused = found.not_measured
    assert unequal.endswith("in 1 run it differed from the reference's, by up to 0.5025 %.")
    assert refused == "3 sends of clients in 1 run were refused, as the client saw."
    assert len(result(turns).not_measured) == 1


def test_a_disturbed_run_is_marked_with_its_reason() -> None:
    turns = [each._replace(others=0.5 * (each.number == 2)) for each in runs(9)]
    for work in result(turns).workloads:
        assert {turn.number for turn in work.rounds if turn.disturbed} == {2}


def test_two_days_of_the_same_client_are_compared() -> None:
    monday, friday = result(runs(9)), result(runs(9, cpu_seconds=2.0))
    changes = compare_results(monday, friday)
    assert changes.cannot == []
    found = {(each.workload, each.side): each for each in changes.changes}
    assert found["cpu", "rocksdb"].outcome is Outcome.WORSE
    assert {workload for workload, _ in found} == set(WHAT)


def test_other_clients_or_other_loads_are_not_compared() -> None:
    monday = result(runs(9))
    other = compare_results(monday, result(runs(9), "other {address}"))
    assert other.cannot == ["The clients differ: my-test {address} in A, other {address} in B."]
    more = monday.store.model_copy(update={"units": 5, "log_bytes": 1})
    changed = compare_results(monday, monday.model_copy(update={"store": more}))
    assert changed.cannot == ["The stores differ: units 1,000,000 in A, 5 in B."]
    run = monday.model_copy(update={"kind": "run"})
    (why,) = compare_results(run, monday).cannot
    assert why == "A was made by ab run, B by ab live --client-command."
