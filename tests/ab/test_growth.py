"""Memory and disk over time: when samples are taken, and where a plot shows them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cqstore.ab.report.growth_plots import growth_plots
from cqstore.ab.report.plots import LinePlot
from cqstore.ab.results.result import Result, Sample
from cqstore.ab.run.growth import Growth
from cqstore.ab.run.rounds import Effort
from tests.ab.made_result import made_result
from tests.ab.made_store import make_varied_store
from tests.ab.running import compare
from tests.ab.test_page import read


class Clock:
    """A side whose samples take ``takes`` seconds, and the clock by which they do."""

    def __init__(self, takes: float = 0.0) -> None:
        self.now, self.takes = 100.0, takes
        self.spec = SimpleNamespace(name="file")

    def request(self, name: str) -> tuple[int, int]:
        assert name == "sample"
        self.now += self.takes
        return 7, 8


@pytest.mark.parametrize(
    ("takes", "times"),
    [(0.0, [1.0, 2.0, 3.0, 4.0]), (0.03125, [1.0, 2.75, 4.5])],
    ids=["quick", "slow"],
)
def test_samples_are_apart_and_take_a_small_part_of_the_time(
    takes: float, times: list[float]
) -> None:
    side = Clock(takes)
    growth = Growth(99.0, lambda: side.now)
    while side.now < 103.75:
        growth.take(side)  # type: ignore[arg-type]
        side.now = 100.0 + 0.25 * (int((side.now - 100.0) / 0.25) + 1)
    assert growth.samples == [Sample(side="file", at=at, pss_bytes=7, disk_bytes=8) for at in times]


def result_with(*rows: tuple[str, float, int, int]) -> Result:
    samples = [
        Sample(side=side, at=at, pss_bytes=memory, disk_bytes=disk)
        for side, at, memory, disk in rows
    ]
    made = made_result(1, workloads=["listing"])
    return made.model_copy(update={"samples": samples})


def plots(result: Result) -> dict[str, LinePlot]:
    return {plot.title: plot for plot in growth_plots(result)}


def test_a_line_grows_to_the_right_and_upwards() -> None:
    rows = [("files", at * 60.0, 1 << 20, at << 20) for at in range(1, 11)]
    made = plots(result_with(*rows, ("rocksdb", 600.0, 5 << 20, 5 << 20)))
    (flat,), (grown,) = made["memory"].lines, made["disk, queues"].lines
    assert (flat.side, flat.kind) == ("files", "series"), "one sample makes no line"
    assert [x for x, _ in grown.points] == pytest.approx([10 * at for at in range(1, 11)])
    heights = [100 - y for _, y in grown.points]
    assert heights == pytest.approx([at * heights[0] for at in range(1, 11)], abs=0.1)
    assert 90 < heights[-1] < 95
    assert len({y for _, y in flat.points}) == 1
    disk = made["disk, queues"]
    assert [text for _, text in disk.y_ticks] == ["0", "4 MiB", "8 MiB"]
    assert [tick.at for tick, _ in disk.y_ticks][1:] == pytest.approx(
        [100 - 4 * heights[0], 100 - 8 * heights[0]], abs=0.1
    )
    assert [text for _, text in disk.x_ticks] == [
        "0 s", "5 min 0 s", "10 min 0 s",
    ]  # fmt: skip


def test_of_many_samples_the_peaks_are_shown() -> None:
    rows = [("files", float(at), 1 << 20, 0) for at in range(1, 5001)]
    rows[3210] = ("files", 3211.0, 9 << 20, 0)
    made = plots(result_with(*rows))
    (line,) = made["memory"].lines
    assert 100 <= len(line.points) <= 120
    assert min(y for _, y in line.points) < 10
    assert {y for _, y in made["disk, queues"].lines[0].points} == {100.0}, "nothing on disk"


@pytest.mark.parametrize("days", [0.5, 1, 7, 100])
def test_times_of_any_length_have_a_few_marks(days: float) -> None:
    end = days * 86_400
    made = plots(result_with(("files", 1.0, 1, 1), ("files", end, 1, 1)))
    assert 3 <= len(made["memory"].x_ticks) <= 5


def test_the_page_shows_them_if_there_are_any() -> None:
    def headings(result: Result) -> bool:
        return "Memory and disk over time" in read(result).texts

    assert not headings(result_with())
    assert not headings(result_with(("files", 1.0, 1, 1)))
    assert headings(result_with(("files", 1.0, 1, 1), ("files", 2.0, 1, 1)))


@pytest.mark.slow
def test_a_comparison_samples_each_side(tmp_path: Path) -> None:
    make_varied_store(tmp_path / "s", 200)
    effort = Effort(3, 0.004, new_processes=False)
    found: Any = compare(tmp_path / "s", "offsets", effort=effort)
    assert {each.side for each in found.samples} == {side.name for side in found.sides}
    for each in found.samples:
        assert each.pss_bytes > 1 << 20
        assert each.disk_bytes > 0
        assert 0 < each.at < found.seconds
