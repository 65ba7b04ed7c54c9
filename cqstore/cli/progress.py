"""Progress of a command on standard error: amount done, rate, and time left.

On a terminal it is one line, rewritten in place; elsewhere a line every ten seconds. With
``--quiet``, and for short work, nothing is shown.
"""

import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from cqstore.cli.streams import STATUS

QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
"""Whether ``--quiet`` was given, before the verb or behind it."""
SHOWN_AFTER = 0.5
REDRAWN_AFTER = 0.2
LINE_AFTER = 10.0
PHY_OFFSETS = ""
"""The unit of ``Progress``: bytes of the log. Any other is the name of what is counted."""
PARTS = "parts"
"""An unknown unit: only the percentage is shown."""
_SCALE = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("bytes", 1))
_MINUTE = 60
_MIN_RATED_SECONDS = 0.2


T = TypeVar("T")


class Tick:
    """How far one piece of work is. Updated by the thread that does it, shown by another."""

    def __init__(
        self, label: str, end: int | None = None, unit: str = PHY_OFFSETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.label = label
        self._clock = clock
        self._made = clock()
        self.measure(end, unit)

    def measure(self, end: int | None, unit: str = PHY_OFFSETS) -> None:
        """Say where the work ends: at a phy offset, or at so many of ``unit``."""
        self._end, self._unit = end, unit
        self._at: int | None = None
        self._passes = 0

    def __call__(self, at: int) -> None:
        """Set the phy offset or the count that the work has reached.

        A lower one than before begins another pass over the same.
        """
        if self._at is None or at < self._at:
            self._first, self._began = at, self._clock()
            self._passes += 1
        self._at = at

    def of(self, at: int, end: int | None) -> None:
        """Take a count together with where it ends."""
        self._end = end
        self(at)

    def set_label(self, label: str) -> None:
        """Name another step of the work in front of the figures."""
        self.label = label

    def sentence(self) -> str:
        """Return label, percent, amounts, rate and time left, if they are known."""
        at, end = self._at, self._end
        if at is None:
            return f"{self.label}: {span_of_time(self._clock() - self._made)}"
        label = f"{self.label}, pass {self._passes}" if self._passes > 1 else self.label
        begin = self._first if self._unit == PHY_OFFSETS and end is not None else 0
        seconds = self._clock() - self._began
        rate = (at - self._first) / seconds if seconds >= _MIN_RATED_SECONDS else 0.0
        if end is None:
            parts = [f"phy offset {at:,}" if self._unit == PHY_OFFSETS else f"{at:,} {self._unit}"]
        else:
            done, total = min(at, end) - begin, max(end - begin, 1)
            parts = [f"{100 * done // total} %"]
            if self._unit != PARTS:
                parts.append(self._amounts(done, total))
        if rate > 0:
            if self._unit != PARTS:
                parts.append(f"{self._amount(rate)}/s")
            if end is not None:
                parts.append(f"{span_of_time((max(end - at, 0)) / rate)} left")
        return f"{label}: {', '.join(parts)}"

    def _amounts(self, done: int, total: int) -> str:
        if self._unit != PHY_OFFSETS:
            return f"{done:,} of {total:,} {self._unit}"
        name, size = _scale_of(total)
        return f"{done / size:,.1f} of {total / size:,.1f} {name}"

    def _amount(self, value: float) -> str:
        if self._unit != PHY_OFFSETS:
            return f"{value:,.0f} {self._unit}"
        name, size = _scale_of(value)
        return f"{value / size:,.0f} {name}"


def span_of_time(seconds: float) -> str:
    """Return seconds as people say them: 12 s, 3 min 20 s, 1 h 5 min."""
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    minutes, rest = divmod(whole, _MINUTE)
    if minutes < _MINUTE:
        return f"{minutes} min {rest} s"
    return f"{minutes // _MINUTE:,} h {minutes % _MINUTE} min"


_active: list[Tick] = []
"""Running progress blocks of this process, the innermost last; only that one is shown."""


@contextmanager
def progress(label: str, end: int | None = None, unit: str = PHY_OFFSETS) -> Iterator[Tick]:
    """Show on stderr the progress that the block reports to the yielded ``Tick``.

    Inside another such block it is shown instead of the outer one until it ends.
    """
    tick = Tick(label, end, unit)
    if QUIET.get() or sys.stderr is None:  # it is closed
        yield tick
        return
    _active.append(tick)
    try:
        if len(_active) > 1:
            yield tick
            return
        with _shown():
            yield tick
    finally:
        _active.remove(tick)


def counted(
    rows: Iterable[T], label: str, end: int | None, unit: str,
    at: Callable[[T], int] | None = None,
) -> Iterator[T]:  # fmt: skip
    """Yield ``rows`` and show how many were taken, or ``at`` what place the last one was."""
    with progress(label, end, unit) as tick:
        for number, row in enumerate(rows):
            tick(number if at is None else at(row))
            yield row


@contextmanager
def _shown() -> Iterator[None]:
    """Have a thread show how far the work is, while the block runs."""
    stream, ended = sys.stderr, threading.Event()
    live = stream.isatty() and os.environ.get("TERM") != "dumb"

    def show() -> None:
        seconds = SHOWN_AFTER if live else LINE_AFTER
        while not ended.wait(seconds):
            text = _active[-1].sentence()
            if live:
                STATUS.show(stream, text[: shutil.get_terminal_size().columns - 1])
            else:
                print(f"cqstore: {text}", file=stream, flush=True)
            seconds = REDRAWN_AFTER if live else LINE_AFTER

    thread = threading.Thread(target=show, name="cqstore-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if live:
            STATUS.clear()


def _scale_of(value: float) -> tuple[str, float]:
    return next((each for each in _SCALE if value >= each[1]), _SCALE[-1])
