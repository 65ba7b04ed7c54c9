"""The page: all in one file, nothing from elsewhere, answers first, and what it says is escaped."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Outcome
from cqstore.ab.judging.latencies import withheld
from cqstore.ab.report.axes import Axis, apart, axis_of, decade_ticks, ratio_axis, ratio_ticks
from cqstore.ab.report.plots import ratio_plot
from cqstore.ab.report.printing import _footprint, _headlines
from cqstore.ab.report.report_page import page, write_page
from cqstore.ab.results.result import Answers, Difference, Result
from cqstore.store.errors import StoreIOError
from tests.ab.made_result import Truth, made_result
from tests.ab.test_latencies import open_loop

VOID = {"meta", "br", "link", "input", "img", "hr"}
EVIL = '</script><script>alert("x")</script><img src=x onerror=alert(1)>&'


class Reader(HTMLParser):
    """Reads a page as a browser would: its elements, its texts, and whether they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.embedded = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.embedded += data
        elif self.open and self.open[-1] != "style" and data.strip():
            self.texts.append(" ".join(data.split()))


def read(result: Result) -> Reader:
    reader = Reader()
    reader.feed(page(result, judge(result)))
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def made() -> Result:
    truth = Truth(at={("rocksdb", "tail-pull"): 1.8}, disturbed={("rocksdb", 2): 2.0})
    return made_result(1, truth, workloads=["tail-pull", "listing"], project_to=1_000_000)


@pytest.fixture(scope="module")
def reader(made: Result) -> Reader:
    return read(made)


def test_the_page_needs_nothing_else(made: Result, reader: Reader) -> None:
    for _, attributes in reader.tags:
        assert not attributes.keys() & {"src", "href", "action", "srcset", "data"}
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "result"}]
    text = page(made, judge(made))
    assert not re.search(r"https?:|@import|url\(", text)


@pytest.mark.parametrize("speed", [1.8, 1 / 1.8])
def test_every_ratio_has_one_direction(speed: float) -> None:
    """Above 1 the side is better, of a throughput as of a latency, on the page and in tables."""
    truth = Truth(at={("rocksdb", "tail-pull"): speed})
    result = made_result(1, truth, workloads=["tail-pull"])
    text = page(result, judge(result)).partition("All figures")[2]
    rows = re.findall(
        r'<th rowspan="1">([^<]+)</th>.*?</td><td class="n">[^<]*</td>\s*'
        r'<td class="n">([\d.]+)</td><td class="n">([\d.]+) to ([\d.]+)</td>',
        text, re.DOTALL,
    )  # fmt: skip
    reported = {label: [float(each) for each in ratios] for label, *ratios in rows}
    assert {"throughput", "p50", "p99"} <= reported.keys()
    for label in ("throughput", "p50", "p99"):
        ratio, low, high = reported[label]
        assert low <= ratio <= high
        assert ratio == pytest.approx(speed, rel=0.1), label
    headline = next(iter(_headlines(judge(result))))
    assert float(str(headline["times as good"])) == pytest.approx(speed, rel=0.1)
    files, rocksdb = (side.footprint for side in result.sides[:2])
    assert files is not None
    assert rocksdb is not None
    (disk, *_) = _footprint(judge(result))
    smaller = files.disk_bytes / rocksdb.disk_bytes
    assert float(str(disk["times as good"])) == pytest.approx(smaller, rel=0.01)


def test_the_answer_comes_first_with_title_and_command(made: Result, reader: Reader) -> None:
    headings = [tag for tag, _ in reader.tags if tag in {"h1", "h2", "h3"}]
    assert headings[0] == "h1"
    assert headings.count("h1") == 1
    judgement = judge(made)
    title, heading, root, text, sure, *others = reader.texts
    assert title == "A/B: rocksdb compared with files"
    assert (heading, root) == ("rocksdb compared with files on", made.store.root)
    assert (text, sure) == (judgement.banner.text, judgement.banner.sure)
    assert others[1] == judgement.answers.sentence
    assert others.index("cqstore ab run /data/store --side files --side rocksdb") < 9


def test_every_sentence_round_and_fact_is_on_the_page(made: Result, reader: Reader) -> None:
    judgement = judge(made)
    said = [each for workload in judgement.workloads for each in workload.sentences]
    assert {each.text for each in said} <= set(reader.texts)
    assert set(judgement.notes) <= set(reader.texts)
    text = " ".join(reader.texts)
    for workload in made.workloads:
        for turn in workload.rounds:
            assert f"{turn.seconds:.4f}" in reader.texts
    assert made.trace is not None
    machine = made.machine
    for fact in (
        made.trace.digest, machine.kernel, machine.mount_options, machine.processor, machine.disk,
        made.method.warm_up, *made.not_measured, "cqstore ab run /data/store --side files",
        *machine.versions.values(),
    ):  # fmt: skip
        assert fact in text


def test_the_result_lies_in_the_page(made: Result, reader: Reader) -> None:
    assert Result.model_validate_json(reader.embedded) == made


def test_every_plot_stays_within_its_edges(reader: Reader) -> None:
    places = [
        float(str(value).removesuffix("%"))
        for tag, attributes in reader.tags
        for name, value in attributes.items()
        if tag in {"line", "circle", "rect"} and str(value).endswith("%") and name != "height"
    ]
    assert len(places) > 500
    assert 0 <= min(places) <= max(places) <= 100


def test_what_comes_from_a_result_is_escaped(made: Result) -> None:
    data = made.model_dump(mode="json")
    data["machine"]["name"] = data["store"]["root"] = data["not_measured"][0] = EVIL
    data["workloads"][0]["name"] = data["sides"][1]["name"] = EVIL
    data["workloads"][0]["rounds"][0]["disturbed"] = EVIL
    text = json.dumps(data).replace('"rocksdb"', json.dumps(EVIL))
    result = Result.model_validate_json(text)
    reader = read(result)
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert "img" not in {tag for tag, _ in reader.tags}
    assert EVIL in " ".join(reader.texts)
    assert Result.model_validate_json(reader.embedded) == result


def test_answers_that_differ_are_told_with_both_answers(made: Result) -> None:
    difference = Difference(
        workload="tail-pull", operation={"op": "pull", "offset": 17},
        answers={"files": "FOUND next 49", "rocksdb": "FOUND next 48"},
    )  # fmt: skip
    first, *rest = made.workloads
    odd = first.model_copy(update={"answers": Answers(compared=9, different=1, first=[difference])})
    reader = read(made.model_copy(update={"workloads": [odd, *rest]}))
    texts = " ".join(reader.texts)
    assert "Differences" not in reader.texts
    assert "The sides gave different answers: 1 of 1,009 compared operations" in texts
    assert {"FOUND next 49", "FOUND next 48"} <= set(reader.texts)
    assert [attributes["class"] for tag, attributes in reader.tags if tag == "header"] == [
        "verdict different"
    ]


@pytest.mark.parametrize("kind", ["run", "live"])
def test_a_page_can_be_made_of_next_to_nothing(made: Result, kind: str) -> None:
    empty = made.model_dump(mode="json") | {
        "workloads": [], "points": [], "project_to": None, "trace": None, "kind": kind
    }  # fmt: skip
    for side in empty["sides"]:
        side["footprint"] = None
    reader = read(Result.model_validate(empty))
    assert "No operation was compared: there is no verdict." in reader.texts


def test_times_that_are_withheld_are_not_drawn_and_it_says_why() -> None:
    result = open_loop(1_000, speed=0.7)
    reader = read(result)
    reported = withheld(result.workloads[0], "rocksdb")
    assert reader.texts.count(f"Withheld: {reported}.") == 2
    late = page(result, judge(result)).split("tail-pull, from the due time</figcaption>")[1]
    drawn = late.split("</figure>")[0]
    assert "s c0 side" in drawn
    assert "s c1" not in drawn


def test_three_sides_are_told_apart(made: Result) -> None:
    result = made_result(2, sides=("files", "rocksdb", "rocksdb-2"), workloads=["listing"])
    reader = read(result)
    drawn = {str(attributes.get("class")) for tag, attributes in reader.tags if tag == "line"}
    assert {"s c0 side", "s c1 side", "s c2 side", "s c0 twin"} <= drawn


def test_a_page_that_cannot_be_written_is_said(made: Result, tmp_path: Path) -> None:
    with pytest.raises(StoreIOError, match="cannot write the HTML report"):
        write_page(tmp_path / "none" / "page.html", made, judge(made))


# ---- axes


def test_an_axis_is_logarithmic_and_keeps_what_lies_outside_at_its_edge() -> None:
    axis = Axis(0.1, 10.0)
    assert [axis.at(value) for value in (0.01, 0.1, 1, 10, 99)] == [0, 0, 50, 100, 100]


def test_an_axis_has_the_least_length() -> None:
    low, high = axis_of([5.0], 4.0)
    assert high / low == pytest.approx(4)
    assert low * high == pytest.approx(25)


def test_marks_of_ratios_hold_one_and_keep_apart() -> None:
    for values in ([1.01], [0.3, 2.0], [0.02, 90.0], [1e9], [1e-9]):
        ticks = ratio_ticks(ratio_axis(values))
        assert 1.0 in [tick.value for tick in ticks]
        assert 2 <= len(ticks) <= 8
        assert all(b.at - a.at >= 13 for a, b in pairwise(ticks))


def test_marks_of_times_are_few() -> None:
    assert [t.value for t in decade_ticks(Axis(0.9e-6, 1.1))] == pytest.approx(
        [1e-6, 1e-4, 1e-2, 1]
    )
    assert [t.value for t in decade_ticks(Axis(0.9, 11))] == pytest.approx([1, 2, 5, 10])


def test_marks_whose_labels_would_run_into_each_other_are_left_out() -> None:
    axis = Axis(1, 100)
    marks = apart(((axis.tick(value), str(value)) for value in (1, 2, 10, 12, 20, 100)), 10)
    assert [text for _, text in marks] == ["1", "2", "10", "100"]


def verdict_class(reader: Reader) -> str | None:
    (header,) = [attributes for tag, attributes in reader.tags if tag == "header"]
    return header["class"]


def test_the_banner_is_green_for_a_firm_answer_alone() -> None:
    truth = Truth(at={("rocksdb", "tail-pull"): 1.8}, noise=0.01)
    names = ["tail-pull", "listing"]
    firm = made_result(1, truth, workloads=names, histograms=False)
    assert verdict_class(read(firm)) == "verdict same"
    all_rounds = {(side, number): 1.0 for side in ("files", "rocksdb") for number in range(10)}
    busy = replace(truth, disturbed=all_rounds)
    reader = read(made_result(1, busy, workloads=names, histograms=False))
    assert verdict_class(reader) == "verdict few"
    assert any(text.startswith("Less than 95 % confidence") for text in reader.texts)
    work, other = firm.workloads
    absent = other.model_copy(update={"rounds": [], "not_measured": "no time was left"})
    reader = read(firm.model_copy(update={"workloads": [work, absent]}))
    assert verdict_class(reader) == "verdict few"
    assert "1 of 2 workloads was not measured: listing." in reader.texts


def test_the_picture_the_table_and_the_sentence_are_about_one_figure() -> None:
    """The throughput is too noisy, so that a percentile decides, see ``test_banner``."""
    made = made_result(4, Truth(noise=0.5), workloads=["tail-pull"])
    (work,) = made.workloads
    rounds = [
        turn.model_copy(update={"service_ns": {"p50": 1_000 + turn.turn % 7 + 1_000 * slow}})
        for turn in work.rounds
        for slow in [turn.side == "rocksdb"]
    ]
    changed = work.model_copy(update={"rounds": rounds, "service": {}})
    judgement = judge(made.model_copy(update={"workloads": [changed]}))
    ((said,),) = [each.sentences for each in judgement.workloads]
    plot = ratio_plot(judgement)
    assert plot is not None
    ((name, outcome),) = [(row.workload, row.outcome) for row in plot.rows]
    assert (name, outcome, said.outcome) == ("tail-pull by p50", Outcome.WORSE, Outcome.WORSE)
    (row,) = _headlines(judgement)
    assert (row["figure"], row["verdict"]) == ("p50", "worse")
