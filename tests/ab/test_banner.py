"""The answer above all: which backend, by the workloads that matter, and how sure."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from cqstore.ab.commands import app
from cqstore.ab.judging.banner import matching
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Banner, Outcome
from cqstore.ab.results.result import Answers, Result
from cqstore.ab.results.result_file import write_result
from cqstore.store.errors import StoreConfigError
from tests.ab.made_result import Truth, made_result

WORKLOADS = ["tail-pull", "listing", "dispatch"]


def reported(truth: Truth, *matters: str, sides: tuple[str, ...] = ("files", "rocksdb")) -> Banner:
    made = made_result(1, truth, workloads=WORKLOADS, sides=sides, histograms=False)
    return judge(made.model_copy(update={"matters": list(matters)})).banner


FAST = Truth(at={("rocksdb", "tail-pull"): 2.0}, noise=0.01)
TORN = Truth(at={("rocksdb", "tail-pull"): 2.0, ("rocksdb", "listing"): 0.5}, noise=0.01)


@pytest.mark.parametrize(
    ("truth", "matters", "side", "text"),
    [
        (
            FAST, (), "rocksdb",
            "Recommended for this store: rocksdb. It is better than files at 1 of the 3 workloads"
            " (tail-pull) and worse at none.",
        ),
        (
            TORN, (), None,
            "It depends on the workloads that matter to you (--matters): rocksdb is better than"
            " files at tail-pull and worse at listing.",
        ),
        (
            TORN, ("listing",), "files",
            "Recommended for this store: files, because rocksdb is worse at the only workload that"
            " matters (listing) and better at none.",
        ),
        (
            TORN, ("tail-pull", "dispatch"), "rocksdb",
            "Recommended for this store: rocksdb. It is better than files at 1 of the 2 workloads"
            " that matter (tail-pull) and worse at none.",
        ),
        (
            FAST, ("dispatch",), None,
            "No preference: no difference was shown at the only workload that matters.",
        ),
    ],
)  # fmt: skip
def test_the_workloads_that_matter_decide(
    truth: Truth, matters: tuple[str, ...], side: str | None, text: str
) -> None:
    banner = reported(truth, *matters)
    assert (banner.side, banner.text, banner.matters) == (side, text, list(matters))
    assert banner.sure == "95 % confidence that all of this holds together."
    assert banner.busy == banner.missing == ""
    assert banner.is_firm == (side is not None)


def without(result: Result, *names: str) -> Result:
    """Return the result of a run that had no time for workloads of these names."""
    return result.model_copy(update={"workloads": [
        each.model_copy(update={"rounds": [], "not_measured": "no time was left"})
        if each.name in names else each
        for each in result.workloads
    ]})  # fmt: skip


def test_workloads_that_did_not_run_are_told_and_the_answer_is_not_firm() -> None:
    made = made_result(1, FAST, workloads=WORKLOADS, histograms=False)
    banner = judge(without(made, "listing", "dispatch")).banner
    assert (banner.side, banner.is_firm) == ("rocksdb", False)
    assert banner.missing == "2 of 3 workloads were not measured: listing, dispatch."
    assert banner.sure == "95 % confidence that all of this holds together."
    named = made.model_copy(update={"matters": ["tail-pull"]})
    banner = judge(without(named, "listing", "dispatch")).banner
    assert (banner.side, banner.is_firm, banner.missing) == ("rocksdb", True, "")


def test_of_several_sides_the_one_that_is_better_most_often_is_told() -> None:
    truth = Truth(
        at={("b", "tail-pull"): 1.5, ("c", "tail-pull"): 1.5, ("c", "listing"): 1.5}, noise=0.01
    )
    banner = reported(truth, sides=("a", "b", "c"))
    assert banner.side == "c"
    which = "(tail-pull, listing) and worse at none. Also better and never worse: b."
    assert banner.text.endswith(f"at 2 of the 3 workloads {which}")


def test_a_busy_machine_is_told_first() -> None:
    rounds = {("rocksdb", number): 1.0 for number in range(6)}
    sure = reported(Truth(at=FAST.at, noise=0.01, disturbed=rounds))
    assert sure.side == "rocksdb"
    assert sure.busy.startswith("The machine was busy at tail-pull, listing, dispatch: 36 of ")
    assert sure.sure.startswith("Less than 95 % confidence: too few undisturbed rounds")
    assert not sure.is_firm
    noisy = reported(Truth(noise=0.6, disturbed=rounds))
    assert noisy.side is None
    assert noisy.text == f"Too busy for a conclusion. {noisy.busy}"
    few = {("rocksdb", number): 1.0 for number in range(3)}
    assert reported(Truth(at=FAST.at, noise=0.01, disturbed=few)).busy == ""


def test_answers_that_differ_name_no_backend() -> None:
    made = made_result(1, FAST, workloads=["tail-pull"], histograms=False)
    (work,) = made.workloads
    for answers, why in (
        (Answers(compared=5_000, different=1), "the sides gave different answers."),
        (Answers(compared=5), "too few answers were compared."),
        (Answers(), "no answer was compared."),
    ):
        odd = made.model_copy(update={"workloads": [work.model_copy(update={"answers": answers})]})
        assert judge(odd).banner == Banner(text=f"No verdict: {why}")


def test_a_firm_percentile_stands_above_a_throughput_that_is_too_noisy() -> None:
    made = made_result(4, Truth(noise=0.5), workloads=["tail-pull"])
    (work,) = made.workloads
    rounds = [
        turn.model_copy(
            update={"service_ns": {"p50": 1_000 + turn.turn % 7 if turn.side == "rocksdb" else
                                   2_000 + turn.turn % 5}}
        )
        for turn in work.rounds
    ]  # fmt: skip
    changed = work.model_copy(update={"rounds": rounds, "service": {}})
    (judged,) = judge(made.model_copy(update={"workloads": [changed]})).workloads
    (said,) = judged.sentences
    assert said.outcome is Outcome.BETTER
    assert said.text.startswith("rocksdb is 1.99 times as fast as files at tail-pull by p50 (95 %")
    assert said.text.endswith(" Its throughput is too noisy to tell.")
    assert "p50" not in " ".join(said.also)


def test_workloads_are_named_with_stars_and_commas(tmp_path: Path) -> None:
    names = ["tail-pull", "random-pull", "restart"]
    assert matching(["*-pull,restart", "tail-pull"], names) == names
    assert matching([], names) == []
    with pytest.raises(StoreConfigError, match="--matters nosuch: no measured workload matches"):
        matching(["restart,nosuch"], names)
    made = made_result(1, TORN, workloads=WORKLOADS, histograms=False)
    with pytest.raises(ValidationError, match="no such workload: nosuch"):
        Result.model_validate(made.model_dump() | {"matters": ["nosuch"]})
    write_result(tmp_path / "r.json", made)
    done = CliRunner().invoke(app, ["report", str(tmp_path / "r.json"), "--matters", "list*"])
    assert done.stdout.startswith(
        "Recommended for this store: files, because rocksdb is worse at the only workload"
    )
