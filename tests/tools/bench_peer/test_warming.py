"""When a side is warm, and what is told of one that never was."""

import pytest

from tools.bench.peer.sessions import Rounds, Row
from tools.bench.peer.sides import OURS, THEIRS, Window
from tools.bench.peer.warming import MAX_WINDOWS, Warming, warm


class Scripted:
    """A side whose windows take what is written; the last again and again."""

    def __init__(self, seconds: list[float]) -> None:
        self.seconds, self.lines = seconds, list[str]()

    def do(self, line: str) -> Window:
        self.lines.append(line)
        done = self.lines.count("put 10") - 1
        return {"count": 10, "seconds": self.seconds[min(done, len(self.seconds) - 1)]}


@pytest.mark.parametrize(
    ("seconds", "windows"),
    [
        ([1.0], 3),
        ([3.0, 2.0, 1.0], 5),
        ([1.0, 1.05, 1.0], 3),
        ([1.0, 1.06, 1.0, 1.05, 1.0], 5),
        ([1.0, 1.0, 2.0, 1.0], 6),
    ],
)
def test_a_side_is_warm_when_three_windows_in_a_row_are_alike(
    seconds: list[float], windows: int
) -> None:
    side = Scripted(seconds)
    found = warm(side, (), "put 10", 60.0)
    assert found.is_warm
    assert len(found.windows) == len(side.lines) == windows
    assert found.windows[0]["seconds"] == seconds[0]


def test_what_comes_before_each_round_comes_before_each_window() -> None:
    side = Scripted([1.0])
    warm(side, ("fill",), "put 10", 60.0)
    assert side.lines == ["fill", "put 10"] * 3


@pytest.mark.parametrize(("max_seconds", "windows"), [(0.0, 3), (60.0, MAX_WINDOWS)])
def test_a_side_that_is_never_steady_is_measured_all_the_same(
    max_seconds: float, windows: int
) -> None:
    found = warm(Scripted([2.0**at for at in range(40)]), (), "put 10", max_seconds)
    assert (found.is_warm, len(found.windows), found.spread) == (False, windows, 4.0)


def test_who_was_not_steady_is_told_and_the_first_window_is_a_row_of_its_own() -> None:
    alike: list[Window] = [{"count": 10, "seconds": 1.0, "cpu_seconds": 1.0}] * 3
    first: Window = {"count": 10, "seconds": 5.0, "cpu_seconds": 5.0}
    rounds = Rounds(warmed={OURS: Warming(alike), THEIRS: Warming([first, *alike, first])})
    for windows in rounds.windows.values():
        windows.extend(alike)
    row = Row({"rate": "put"}, "put 10", first="the first put", note="noted")
    cold, steady = row.measured("file", rounds)
    assert (cold.name, cold.values(OURS), cold.values(THEIRS)) == ("the first put", [10.0], [2.0])
    assert steady.values(THEIRS) == [10.0] * 3
    assert steady.note == (
        "noted; RocketMQ was not steady: of its last windows before the rounds the slowest took"
        " 5.00 times the fastest"
    )
