"""A side is measured when it is warm: when three windows in a row hardly differ."""

import time
from dataclasses import dataclass, field
from typing import Protocol

from tools.bench.peer.sides import Window

ALIKE = 1.05
"""The slowest of the last windows may take this many times what the fastest took."""
WINDOWS = 3
"""That must be alike, in a row."""
MAX_WINDOWS = 20
"""Then it is measured as it is, and the table says so: each window leaves its messages on disk."""
MAX_SECONDS, MAX_SECONDS_QUICK = 60.0, 8.0
"""Likewise."""


class Worker(Protocol):
    """What does lines of work."""

    def do(self, line: str) -> Window: ...


@dataclass
class Warming:
    """The windows until a side was warm; the first is that of a process that just started."""

    windows: list[Window] = field(default_factory=list)

    @property
    def is_warm(self) -> bool:
        """Return whether the last windows are alike."""
        last = [each_seconds(window) for window in self.windows[-WINDOWS:]]
        return len(last) == WINDOWS and max(last) <= min(last) * ALIKE

    @property
    def spread(self) -> float:
        """Return how many times the fastest of the last windows the slowest took."""
        last = [each_seconds(window) for window in self.windows[-WINDOWS:]]
        return max(last) / min(last)


def each_seconds(window: Window) -> float:
    """Return the seconds that one operation of a window took."""
    return float(window["seconds"]) / float(window["count"])


def warm(side: Worker, each: tuple[str, ...], line: str, max_seconds: float) -> Warming:
    """Have ``line`` done, each time after the lines of ``each``, until the side is warm.

    After ``max_seconds`` no further window is begun; three are done in any case.
    """
    done, end = Warming(), time.monotonic() + max_seconds
    while not done.is_warm:
        if len(done.windows) >= WINDOWS and time.monotonic() >= end:
            break
        if len(done.windows) == MAX_WINDOWS:
            break
        for before in each:
            side.do(before)
        done.windows.append(side.do(line))
    return done
