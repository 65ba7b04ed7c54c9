"""Histograms, percentiles and hours of mirrored reads, against what was put into them."""

import random
from pathlib import Path

import numpy as np
import pytest

from cqstore.ab.mirror import mirror_figures as figures_module
from cqstore.ab.mirror.mirror_figures import (
    FINE_BOUNDS,
    HOUR_SECONDS,
    MAX_HOURS,
    AnswerCost,
    MirrorFigures,
    ReadOrigin,
    Seconds,
    percentile,
    read_figures,
)
from cqstore.ab.mirror.verdict import ReadOutcome
from cqstore.store.errors import CorruptionError
from cqstore.store.service.runtime.histogram_snapshot import BOUNDS
from cqstore.store.service.runtime.meters import Histogram


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_800_000_000.0
        monkeypatch.setattr(figures_module.time, "time", lambda: self.now)  # type: ignore[attr-defined]


def test_fine_buckets_are_the_ordinary_ones_cut_smaller() -> None:
    assert set(BOUNDS) < set(FINE_BOUNDS)
    assert list(FINE_BOUNDS) == sorted(FINE_BOUNDS)
    ratios = np.array(FINE_BOUNDS[1:]) / np.array(FINE_BOUNDS[:-1])
    assert ratios.max() < 1.13
    assert (FINE_BOUNDS[0], FINE_BOUNDS[-1]) == (5e-7, 10.0)
    draw = random.Random(1)
    fine, coarse = Histogram(FINE_BOUNDS), Histogram()
    for _ in range(5_000):
        seconds = draw.choice([*BOUNDS, 10 ** draw.uniform(-8, 2)])
        fine.observe(seconds)
        coarse.observe(seconds)
    held = fine.snapshot()
    folded = Seconds(
        op="pull",
        side="a",
        way=ReadOrigin.SERVED,
        counts=held.counts,
        total_seconds=held.total_seconds,
    )
    assert folded.coarse == coarse.snapshot()


def test_percentiles_are_those_of_the_values_to_a_bucket() -> None:
    draw = random.Random(2)
    values = [10 ** draw.gauss(-4.5, 0.5) for _ in range(20_000)]
    histogram = Histogram(FINE_BOUNDS)
    for value in values:
        histogram.observe(value)
    for share in (0.01, 0.5, 0.99):
        exact = float(np.quantile(values, share))
        assert percentile(histogram.snapshot(), share) == pytest.approx(exact, rel=0.05)
    assert percentile(Histogram(FINE_BOUNDS).snapshot(), 0.5) == 0
    beyond = Histogram(FINE_BOUNDS)
    beyond.observe(100)
    assert percentile(beyond.snapshot(), 0.99) == 10


def test_each_hour_and_each_opening_has_figures_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, path = Clock(monkeypatch), tmp_path / "ab" / "figures"
    for opening in range(2):
        figures = MirrorFigures(path)
        figures.load()
        for hour in range(3):
            for _ in range(2):
                figures.add_alike(
                    "pull", {"a": AnswerCost(1e-3, 5e-4), "b": AnswerCost(2e-3, 1e-3)}, 7
                )
            figures.count("pull", ReadOutcome.SAME)
            assert len(figures.snapshot().hours) == 2 * (3 * opening + hour + 1)
            clock.now += HOUR_SECONDS
        figures.save(5)
    found = read_figures(path)
    assert found is not None
    assert (found.dropped, found.count(ReadOutcome.SAME), found.began) == (10, 6, 1_800_000_000.0)
    began = [1_800_000_000 + HOUR_SECONDS * hour for hour in range(6)]
    for side, seconds in (("a", 1e-3), ("b", 2e-3)):
        mine = [each for each in found.hours if each.side == side]
        assert [each.began for each in mine] == began
        assert {(each.op, each.reads, each.items) for each in mine} == {("pull", 2, 14)}
        assert [each.seconds for each in mine] == pytest.approx([2 * seconds] * 6)
        assert [each.cpu_seconds for each in mine] == pytest.approx([seconds] * 6)
        assert [each.p50 for each in mine] == pytest.approx([seconds] * 6, rel=0.13)


def test_hours_go_after_five_weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, figures = Clock(monkeypatch), MirrorFigures(tmp_path / "figures")
    for _ in range(MAX_HOURS + 50):
        figures.add_alike("pull", {"a": AnswerCost(1e-3, 1e-3)}, 1)
        clock.now += HOUR_SECONDS
    hours = figures.snapshot().hours
    assert len(hours) == MAX_HOURS
    assert hours[-1].began == clock.now - HOUR_SECONDS
    (seconds,) = figures.snapshot().seconds
    assert sum(seconds.counts) == MAX_HOURS + 50


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-9], lambda data: b"", lambda data: data * 2, lambda _: b"{}\n"]
)
def test_figures_that_are_damaged_are_said_to_be(tmp_path: Path, spoil: object) -> None:
    path = tmp_path / "figures"
    assert read_figures(path) is None
    figures = MirrorFigures(path)
    figures.add_alike("pull", {"a": AnswerCost(1e-3, 1e-3)}, 1)
    figures.save(0)
    assert callable(spoil)
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(CorruptionError, match="damaged"):
        read_figures(path)
