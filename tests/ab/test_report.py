"""What the commands print, and how they end."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner
from typer.testing import Result as TurnResult

from cqstore.ab.commands import app
from cqstore.ab.judging.intervals import unpaired
from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Banner, Judgement
from cqstore.ab.judging.paired_rounds import values
from cqstore.ab.judging.side_figures import FIGURES
from cqstore.ab.report.printing import print_report
from cqstore.ab.results.result import Answers, Difference, Result
from cqstore.ab.results.result_file import result_schema, write_result
from cqstore.cli.output import OutputFormat
from tests.ab.made_result import Truth, made_result
from tests.ab.test_latencies import open_loop


@pytest.fixture(scope="module")
def made() -> Result:
    truth = Truth(at={("rocksdb", "tail-pull"): 1.8})
    return made_result(1, truth, workloads=["tail-pull", "listing"], project_to=1_000_000)


@pytest.fixture
def file(made: Result, tmp_path: Path) -> Path:
    write_result(tmp_path / "result.json", made)
    return tmp_path / "result.json"


def run(*words: str | Path) -> TurnResult:
    return CliRunner().invoke(app, list(map(str, words)))


def written(path: Path, result: Result) -> Path:
    write_result(path, result)
    return path


# ---- report


def test_the_report_begins_with_the_answer_and_says_a_sentence_a_workload(
    made: Result, file: Path
) -> None:
    done = run("report", file)
    lines = [line.strip() for line in done.stdout.splitlines()]
    judgement = judge(made)
    assert done.exit_code == 0
    assert lines[:4] == [
        "Recommended for this store: rocksdb. It is better than files at 1 of the 2 workloads"
        " (tail-pull) and worse at none.",
        "95 % confidence that all of this holds together.",
        judgement.answers.sentence,
        "rocksdb compared with files at 2 workloads: 1 better, 1 no difference shown.",
    ]
    for workload in judgement.workloads:
        assert workload.sentences[0].text in lines
    assert any(line.split()[:2] == ["listing", "throughput"] for line in lines)
    assert any(line.startswith("on disk per queue") for line in lines)
    assert any(line.startswith("rocksdb  files") and line.endswith("125") for line in lines)


def test_as_json_the_report_is_the_judgement(made: Result, file: Path) -> None:
    done = run("report", file, "--output", "json")
    assert Judgement.model_validate_json(done.stdout) == judge(made)


def test_as_lines_every_figure_is_one(made: Result, file: Path) -> None:
    done = run("report", file, "--output", "jsonl")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert rows[0]["kind"] == "answers"
    figures = [row for row in rows if row["kind"] == "figure"]
    assert len(figures) == sum(len(each.comparisons) for each in judge(made).workloads)


def test_a_footprint_is_measured_in_no_round(made: Result) -> None:
    footprint = judge(made).footprint
    assert {each.side for each in footprint} == {"rocksdb", "files-again"}
    assert {(each.rounds, each.left_out) for each in footprint} == {(0, 0)}


def test_the_page_is_written_beside(file: Path, tmp_path: Path) -> None:
    done = run("report", file, "--html", tmp_path / "page.html")
    assert (done.exit_code, done.stderr) == (
        0,
        f"cqstore: HTML report written to {tmp_path / 'page.html'}\n",
    )
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (Answers(compared=5_000, different=1), 1),
        (Answers(compared=0), 1),
        (Answers(compared=5), 0),
        (Answers(compared=5_000), 0),
    ],
)
def test_answers_decide_the_exit_code(
    made: Result, tmp_path: Path, answers: Answers, code: int
) -> None:
    (workload, _) = made.workloads
    odd = workload.model_copy(update={"answers": answers})
    path = written(tmp_path / "odd.json", made.model_copy(update={"workloads": [odd]}))
    assert run("report", path).exit_code == code


def test_the_schema_is_printed() -> None:
    done = run("report", "--schema")
    assert (done.exit_code, done.stdout) == (0, result_schema())


@pytest.mark.parametrize("module", ["scipy", "hdrh", "jinja2"])
def test_without_the_extra_it_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    done = run("report", file)
    assert "pip install 'cqstore[ab]'" in str(done.exception)


def test_commands_are_there() -> None:
    names = {command.name for command in typer.main.get_command(app).commands.values()}  # type: ignore[attr-defined]
    assert {"report", "compare"} <= names


# ---- compare


def test_a_side_that_changed_is_named_and_others_are_not(made: Result, tmp_path: Path) -> None:
    truth = Truth(at={("rocksdb", "tail-pull"): 1.2}, drift=0.01)
    later = made_result(2, truth, workloads=["tail-pull", "listing"])
    done = run("compare", written(tmp_path / "a", made), written(tmp_path / "b", later))
    assert done.exit_code == 0
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert any(
        line.startswith("rocksdb is 0.6") and "in B as in A at tail-pull" in line for line in lines
    )
    assert "No change shown in 3 of 4 figures." in lines
    assert "seed: 1 in A, 2 in B" in lines
    rows = [line.split()[:2] for line in lines]
    for workload in ("tail-pull", "listing"):
        for side in ("files", "rocksdb"):
            assert [workload, side] in rows


@pytest.mark.parametrize(
    ("place", "change", "reported"),
    [
        ("store", {"units": 999}, "The stores differ: units 1,000,000 in A, 999 in B."),
        (
            "trace",
            {"digest": "ab" * 32},
            "The traces differ: 5e5e5e5e5e5e in A, abababababab in B.",
        ),
        ("method", {"cache": "dropped"}, "The page cache was warm in A, dropped in B."),
        ("", {"kind": "live"}, "A was made by ab run, B by ab live."),
    ],
)
def test_results_of_other_data_are_not_compared(
    made: Result, tmp_path: Path, place: str, change: dict[str, object], reported: str
) -> None:
    data = made.model_dump(mode="json")
    (data[place] if place else data).update(change)
    other = written(tmp_path / "b", Result.model_validate(data))
    done = run("compare", written(tmp_path / "a", made), other)
    assert done.exit_code == 2
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[:2] == ["No figures can be compared:", reported]
    assert "What changed:" not in lines


@pytest.mark.slow
def test_what_else_differs_is_told_and_nothing_more(made: Result, tmp_path: Path) -> None:
    data = made.model_dump(mode="json")
    data["machine"] |= {"name": "broker-4", "versions": {"python": "3.12.1", "cqstore": "0.1.0"}}
    data["method"]["rounds"] = 21
    other = written(tmp_path / "b", Result.model_validate(data))
    first = written(tmp_path / "a", made)
    printed_output = json.loads(run("compare", first, other, "--output", "json").stdout)
    assert printed_output["circumstances"] == [
        "name: broker-3 in A, broker-4 in B",
        "version of python: 3.11.7 in A, 3.12.1 in B",
        "version of rocksdb: 9.8.4 in A, none in B",
        "rounds: 11 in A, 21 in B",
    ]
    same = json.loads(run("compare", first, first, "--output", "json").stdout)
    assert (same["circumstances"], same["left_out"], same["cannot"]) == ([], [], [])


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"mode": "open"}, "is closed loop in A, open loop in B"),
        ({"offered": 50.0}, "had no operations per second due in A, 50 in B"),
        ({"not_measured": "no room"}, "was not measured in both"),
    ],
)
def test_a_workload_that_was_run_otherwise_is_left_out(
    made: Result, tmp_path: Path, change: dict[str, object], reported: str
) -> None:
    data = made.model_dump(mode="json")
    data["workloads"][0] |= change
    other = written(tmp_path / "b", Result.model_validate(data))
    done = run("compare", written(tmp_path / "a", made), other, "--output", "json")
    found = json.loads(done.stdout)
    assert found["left_out"] == [f"The workload tail-pull {reported}."]
    assert {each["workload"] for each in found["changes"]} == {"listing"}


def test_different_answers_allow_no_comparison(made: Result, tmp_path: Path) -> None:
    (first, second) = made.workloads
    odd = first.model_copy(update={"answers": Answers(compared=5_000, different=2)})
    other = written(tmp_path / "b", made.model_copy(update={"workloads": [odd, second]}))
    done = run("compare", written(tmp_path / "a", made), other)
    assert done.exit_code == 2
    assert "The figures of B cannot be used: The sides gave different answers" in done.stdout


def test_what_is_in_one_alone_is_left_out_and_said(made: Result, tmp_path: Path) -> None:
    other = made_result(2, sides=("files", "rocksdb-2"), workloads=["listing", "restart"])
    done = run(
        "compare", written(tmp_path / "a", made), written(tmp_path / "b", other), "--output", "json"
    )
    printed_output = json.loads(done.stdout)
    assert printed_output["left_out"] == [
        "The side rocksdb is only in A.",
        "The side rocksdb-2 is only in B.",
        "The workload tail-pull is only in A.",
        "The workload restart is only in B.",
    ]
    (one,) = printed_output["changes"]
    assert (one["workload"], one["side"]) == ("listing", "files")
    figures = [
        values(each, FIGURES[one["figure"]], "files")
        for result in (other, made)
        for each in result.workloads
        if each.name == "listing"
    ]
    mine, theirs = figures
    alone = unpaired(mine, theirs, made.method.confidence)  # of one comparison: nothing is shared
    assert (one["low"], one["high"]) == (pytest.approx(alone.low), pytest.approx(alone.high))


def test_a_side_with_other_settings_is_another_side(made: Result, tmp_path: Path) -> None:
    data = made.model_dump(mode="json")
    data["sides"][1]["given"] = "rocksdb,block_size=4096"
    other = written(tmp_path / "b", Result.model_validate(data))
    done = run("compare", written(tmp_path / "a", made), other)
    assert "The side rocksdb is rocksdb in A, rocksdb,block_size=4096 in B." in done.stdout


def test_times_that_are_withheld_in_one_are_compared_by_the_throughput(tmp_path: Path) -> None:
    reached, not_reached = open_loop(1_000), open_loop(1_000, speed=0.7)
    done = run(
        "compare", written(tmp_path / "a", reached), written(tmp_path / "b", not_reached),
        "--output", "jsonl",
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["side"], row["figure"]) for row in rows] == [
        ("files", "throughput"), ("rocksdb", "throughput"),
    ]  # fmt: skip
    again = run(
        "compare", tmp_path / "a", written(tmp_path / "c", open_loop(1_000)), "--output", "jsonl"
    )
    assert {json.loads(line)["figure"] for line in again.stdout.splitlines()} == {"intended_p99"}


@pytest.mark.slow
def test_two_runs_of_the_same_show_no_change(tmp_path: Path) -> None:
    same = Truth(drift=0.02)
    runs = [made_result(seed, same, histograms=False) for seed in (11, 12)]
    done = run(
        "compare", written(tmp_path / "a", runs[0]), written(tmp_path / "b", runs[1]),
        "--output", "jsonl",
    )  # fmt: skip
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) == 24
    assert {row["outcome"] for row in rows} == {"no difference shown"}


def test_a_report_is_told_in_paragraphs_and_what_is_not_there_takes_none(
    made: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = judge(made)
    (said,) = whole.workloads[0].sentences
    sentences = [
        said.model_copy(update={"text": f"Said {len(also)}.", "also": also})
        for also in (["p99", "p50"], [])
    ]
    changed = {"sentences": sentences, "withheld": {"p50": "too few"}}
    workload = whole.workloads[0].model_copy(update=changed)
    noted = whole.model_copy(update={"notes": ["One.", "Two."], "workloads": [workload]})
    print_report(noted, OutputFormat.TABLE)
    reported = capsys.readouterr().out
    assert reported.endswith("\n\nOne.\nTwo.\n")
    paragraphs = reported.split("\n\n")
    assert len(paragraphs) == 6, "answers, sentences, three tables, notes"
    assert "\n\n\n" not in reported
    assert paragraphs[1].splitlines() == [
        "  Said 2.", "    also: p99; p50", "  Said 0.", "    withheld: too few",
    ]  # fmt: skip
    bare = noted.model_copy(update={"notes": [], "projections": [], "footprint": []})
    print_report(bare, OutputFormat.TABLE)
    reported = capsys.readouterr().out
    assert len(reported.split("\n\n")) == 3
    assert not reported.endswith("\n\n")


def test_tables_tell_verdicts_in_short_and_what_each_side_takes_but_the_twin(
    made: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(judge(made), OutputFormat.TABLE)
    _, _, headlines, footprint, *_ = capsys.readouterr().out.split("\n\n")
    verdicts = [line.rstrip() for line in headlines.splitlines()]
    assert verdicts[-2].endswith(" better")
    assert verdicts[-1].endswith(" no difference")
    assert "files-again" not in footprint
    assert " rocksdb " in footprint


@pytest.mark.parametrize(
    ("banner", "reported"),
    [
        (Banner(text="Files.", busy="It was busy."), ["It was busy.", "Files."]),
        (Banner(text="It was busy. No answer.", busy="It was busy."), ["It was busy. No answer."]),
        (Banner(text="Files.", sure="95 %."), ["Files.", "95 %."]),
    ],
)
def test_that_the_machine_was_busy_is_told_first_and_once(
    made: Result, capsys: pytest.CaptureFixture[str], banner: Banner, reported: list[str]
) -> None:
    whole = judge(made).model_copy(update={"banner": banner})
    print_report(whole, OutputFormat.TABLE)
    lines = capsys.readouterr().out.splitlines()
    assert lines[: lines.index(whole.answers.sentence)] == reported


def test_answers_that_differ_are_told_with_what_was_asked_and_by_whom(
    made: Result, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = judge(made)
    first = Difference(
        workload="listing", operation={"op": "listTopics"}, answers={"files": "1", "rocksdb": "2"}
    )
    answers = whole.answers.model_copy(update={"digests": ["Round 3.", "5."], "first": [first]})
    print_report(whole.model_copy(update={"answers": answers}), OutputFormat.TABLE)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(answers.sentence)
    assert lines[at + 1 : at + 6] == [
        "  Round 3.", "  5.", '  listing: {"op":"listTopics"}', "    files: 1", "    rocksdb: 2",
    ]  # fmt: skip


def test_what_was_judged_is_not_changed() -> None:
    banner = Banner(text="Files.")
    with pytest.raises(ValueError, match="frozen"):
        banner.text = "RocksDB."  # type: ignore[misc]
