"""Progress of a command on standard error: amount done, rate, and time left.

On a terminal, it is one line, rewritten in place; otherwise, it is a new line every ten seconds.
Nothing is shown with ``--quiet`` or for short work.
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
"""Whether ``--quiet`` was given, before or after the verb."""
SHOWN_AFTER = 0.5
REDRAWN_AFTER = 0.2
LINE_AFTER = 10.0
PHY_OFFSETS = ""
"""Unit of ``Progress``: bytes of the log. Any other unit is the name of the counted items."""
PARTS = "parts"
"""An unknown unit: only the percentage is shown."""
_SCALE = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3), ("bytes", 1))
_MINUTE = 60
_MIN_RATED_SECONDS = 0.2


T = TypeVar("T")


class Tick:
    """Progress of one piece of work. Updated by the working thread, shown by another thread."""

    def __init__(
        self, label: str, end: int | None = None, unit: str = PHY_OFFSETS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.label = label
        self._clock = clock
        self._made = clock()
        self.measure(end, unit)

    def measure(self, end: int | None, unit: str = PHY_OFFSETS) -> None:
        """Set where the work ends: a phy offset, or a number of ``unit``."""
        self._end, self._unit = end, unit
        self._at: int | None = None
        self._passes = 0

    def __call__(self, at: int) -> None:
        """Set the phy offset or the count that the work has reached.

        A value lower than the previous one starts another pass over the same range.
        """
        if self._at is None or at < self._at:
            self._first, self._began = at, self._clock()
            self._passes += 1
        self._at = at

    def of(self, at: int, end: int | None) -> None:
        """Set the reached count together with the end."""
        self._end = end
        self(at)

    def set_label(self, label: str) -> None:
        """Set the label shown before the figures, for the next step of the work."""
        self.label = label

    def sentence(self) -> str:
        """Return the label and the known values of percent, amounts, rate and time left."""
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
    """Return seconds in a readable form: 12 s, 3 min 20 s, 1 h 5 min."""
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

    A nested block is shown instead of the outer block until it ends.
    """
    tick = Tick(label, end, unit)
    if QUIET.get() or sys.stderr is None:  # stderr is closed
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
    """Yield ``rows`` and show how many were taken, or the position ``at`` of the last one."""
    with progress(label, end, unit) as tick:
        for number, row in enumerate(rows):
            tick(number if at is None else at(row))
            yield row


@contextmanager
def _shown() -> Iterator[None]:
    """Run a thread that shows the progress while the block runs."""
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
