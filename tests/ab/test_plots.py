"""Plots put what they show where it belongs."""

import pytest

from cqstore.ab.judging.judge import judge
from cqstore.ab.judging.judgement import Outcome
from cqstore.ab.report.axes import Axis, decade_ticks
from cqstore.ab.report.plots import LinePlot, RatioPlot, latency_plot, projection_plots, ratio_plot
from cqstore.ab.results.result import Answers, Result
from tests.ab.made_result import Truth, made_result
from tests.ab.test_latencies import open_loop


def ratios(result: Result) -> RatioPlot:
    found = ratio_plot(judge(result))
    assert found is not None
    return found


def one(plot: RatioPlot) -> float:
    (place,) = [tick.at for tick in plot.ticks if tick.value == 1]
    return place


def test_a_better_side_lies_to_the_right_of_one_and_of_the_noise() -> None:
    truth = Truth(at={("rocksdb", "tail-pull"): 1.8, ("rocksdb", "listing"): 0.5})
    result = made_result(1, truth, workloads=["tail-pull", "listing", "dispatch"])
    plot = ratios(result)
    better, worse, same = plot.rows
    middle = one(plot)
    assert [row.workload for row in plot.rows] == ["tail-pull", "listing", "dispatch"]
    assert middle < better.floor_high < better.low <= better.at <= better.high
    assert worse.low <= worse.at <= worse.high < worse.floor_low < middle
    assert same.low <= middle <= same.high
    assert same.floor_low == pytest.approx(2 * middle - same.floor_high, abs=0.1)
    assert (better.outcome, worse.outcome) == (Outcome.BETTER, Outcome.WORSE)
    assert better.text.startswith("1.8")


def test_a_longer_latency_lies_to_the_left() -> None:
    plot = ratios(open_loop(600, speed=0.7))
    (row,) = plot.rows
    assert row.low <= row.at <= row.high < one(plot)
    assert row.text.startswith("0.7")


def test_without_a_floor_there_is_no_band() -> None:
    plot = ratios(made_result(1, workloads=["listing"], twin=False))
    assert plot.rows[0].floor_low == plot.rows[0].floor_high == one(plot)


def test_nothing_is_drawn_of_what_may_not_be_judged() -> None:
    result = made_result(1, workloads=["listing"])
    (workload,) = result.workloads
    few = workload.model_copy(update={"answers": Answers(compared=9)})
    assert ratio_plot(judge(result.model_copy(update={"workloads": [few]}))) is None
    assert ratio_plot(judge(made_result(1, Truth(rounds=2), workloads=["listing"]))) is None


def lines(result: Result) -> LinePlot:
    found = latency_plot(result, result.workloads[0])
    assert found is not None
    return found


def test_latencies_rise_to_the_right_and_the_slower_side_lies_above() -> None:
    result = made_result(1, Truth(speed={"rocksdb": 0.25}), workloads=["tail-pull"])
    plot = lines(result)
    places = {line.side: line.points for line in plot.lines}
    for points in places.values():
        assert points == sorted(points)
        assert [y for _, y in points] == sorted((y for _, y in points), reverse=True)
    fast, slow = places["files"], places["rocksdb"]
    assert all(a[1] > b[1] for a, b in zip(fast, slow, strict=True))
    assert [(line.side, line.kind) for line in plot.lines] == [
        ("files", "side"), ("rocksdb", "side"), ("files-again", "twin"),
    ]  # fmt: skip
    assert [text for _, text in plot.x_ticks] == ["p50", "p90", "p99", "p99.9"]
    assert fast[0][0] == 0
    heights = [tick.at for tick, _ in plot.y_ticks]
    assert heights == sorted(heights, reverse=True)


def test_pieces_of_a_line_join_its_points() -> None:
    line = lines(made_result(1, workloads=["tail-pull"])).lines[0]
    assert [piece[:2] for piece in line.segments] == line.points[:-1]
    assert [piece[2:] for piece in line.segments] == line.points[1:]


def test_without_histograms_there_are_no_latencies() -> None:
    result = made_result(1, workloads=["tail-pull"], histograms=False)
    assert latency_plot(result, result.workloads[0]) is None


def test_a_projection_runs_from_the_first_point_to_what_was_asked() -> None:
    result = made_result(1, workloads=["listing"], project_to=1_000_000)
    plots = {plot.title: plot for plot in projection_plots(judge(result).projections)}
    assert set(plots) == {
        "on disk", "files", "memory maps", "descriptors", "memory after opening", "time to open"
    }  # fmt: skip
    for plot in plots.values():
        projected, measured = plot.lines[:2]
        assert (projected.kind, measured.kind) == ("projected", "measured")
        assert len(measured.points) == 3
        assert projected.points[0] == pytest.approx(measured.points[0], abs=0.1)
        assert max(x for x, _ in projected.points) == projected.points[-1][0] > 95
    assert [text for _, text in plots["files"].x_ticks] == ["1 k", "10 k", "100 k", "1 M"]


def test_marks_of_bytes_are_powers_of_two() -> None:
    values = [tick.value for tick in decade_ticks(Axis(1e3, 1e9), 5, 16)]
    assert values == [16.0**power for power in (3, 4, 5, 6, 7)]
    few = [tick.value for tick in decade_ticks(Axis(3e3, 3e5), 5, 16)]
    assert few == [4.0**power for power in (6, 7, 8, 9)]


def test_few_marks_of_counts_are_those_of_coins() -> None:
    assert [tick.value for tick in decade_ticks(Axis(9, 600))] == [10, 20, 50, 100, 200, 500]
    assert [tick.value for tick in decade_ticks(Axis(9, 60_000))] == [10, 100, 1000, 10_000]
