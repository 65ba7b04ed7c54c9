"""What was measured: raw windows of both sides, and what follows from them."""

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from tools.bench.peer.sides import OURS, THEIRS, Window


class Spread(NamedTuple):
    """Median and ends of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Return the spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Kind:
    """How a figure is got from a window."""

    unit: str
    value: Callable[[Window], float]
    more_is_better: bool = False
    has_cpu: bool = True


def _a(window: Window, name: str) -> float:
    return float(window[name])


KINDS = {
    "rate": Kind("/s", lambda w: _a(w, "count") / _a(w, "seconds"), more_is_better=True),
    "level": Kind(
        "/s", lambda w: _a(w, "count") / _a(w, "level_seconds"), more_is_better=True, has_cpu=False
    ),
    "flow": Kind("MB/s", lambda w: _a(w, "bytes") / _a(w, "seconds") / 1e6, more_is_better=True),
    "each": Kind("ms", lambda w: _a(w, "seconds") * 1e3 / _a(w, "count")),
    "stall": Kind("ms", lambda w: _a(w, "call_p100_us") / 1e3, has_cpu=False),
    "wait": Kind("ms", lambda w: _a(w, "due_p99.9_us") / 1e3, has_cpu=False),
    "memory": Kind("MiB", lambda w: _a(w, "resident_bytes") / (1 << 20), has_cpu=False),
    "disk": Kind("B", lambda w: _a(w, "disk_bytes") / _a(w, "queues"), has_cpu=False),
}
"""The figures that there are, by the name that a row has for them."""


class Measured(BaseModel):
    """One row: the windows of each side, in the order of the rounds."""

    name: str
    backend: str
    kind: str
    windows: dict[str, list[dict[str, float | str]]]
    others: list[float]
    """Cores that neither side used while it was measured, a number a window."""
    failed: dict[str, str] = {}
    """Sides that could not do it, and what they said."""
    note: str = ""
    """What else is to be known of the row."""

    def values(self, side: str) -> list[float]:
        """Return the figure of each round."""
        return [KINDS[self.kind].value(window) for window in self.windows.get(side, [])]

    def cpu(self, side: str) -> list[float]:
        """Return microseconds of processor time an operation, a value a round."""
        if not KINDS[self.kind].has_cpu:
            return []
        return [
            _a(window, "cpu_seconds") * 1e6 / _a(window, "count")
            for window in self.windows.get(side, [])
        ]

    def ratio(self) -> Spread | None:
        """Return how many times we are ahead, round by round; below 1 we are behind."""
        pairs = zip(self.values(OURS), self.values(THEIRS), strict=False)
        more = KINDS[self.kind].more_is_better
        return _spread([ours / theirs if more else theirs / ours for ours, theirs in pairs])

    def cpu_ratio(self) -> Spread | None:
        """Return how many times the processor time of ours RocketMQ takes, round by round."""
        pairs = zip(self.cpu(OURS), self.cpu(THEIRS), strict=False)
        return _spread([theirs / ours for ours, theirs in pairs if ours])


def _spread(values: Sequence[float]) -> Spread | None:
    return Spread.of(values) if values else None


_SPREAD = re.compile(r"([\d.,e+-]+)[^(]*\(([\d.,e+-]+) to ([\d.,e+-]+)\)")


class Published(BaseModel):
    """One row of an earlier run, as it stands in the published table: its windows are gone."""

    cells: tuple[str, ...]
    """By the columns of the table: names, both figures, ratio, both processor times, ratio."""
    backend: str
    others: tuple[float, ...] = ()
    failed: dict[str, str] = {}
    note: str = ""

    @property
    def name(self) -> str:
        """Return the first cell."""
        return self.cells[0]

    def values(self, side: str) -> list[float]:
        """Return the median of the side, if it has one."""
        spread = self._spread(2 if side == OURS else 3)
        return [spread.median] if spread else []

    def ratio(self) -> Spread | None:
        """Return how many times we are ahead, as ``Measured`` does."""
        return self._spread(4)

    def cpu_ratio(self) -> Spread | None:
        """Return how many times the processor time of ours RocketMQ takes."""
        return self._spread(7)

    def _spread(self, at: int) -> Spread | None:
        found = _SPREAD.search(self.cells[at])
        if found is None:
            return None
        return Spread(*(float(number.replace(",", "")) for number in found.groups()))


class Report(BaseModel):
    """A whole run."""

    machine: dict[str, str]
    settings: str
    """How it was measured, a sentence."""
    quick: bool = False
    """Too short for figures that are published."""
    rows: list[Measured | Published] = []

    def with_row(self, row: Measured) -> "Report":
        """Return it with ``row``, in the place of one of that name if there was one."""
        others = [
            each for each in self.rows if (each.name, each.backend) != (row.name, row.backend)
        ]
        return self.model_copy(update={"rows": [*others, row]})

    def with_published(self, rows: Sequence[Published]) -> "Report":
        """Return it with those of ``rows`` that it does not have itself."""
        known = {(row.name, row.backend) for row in self.rows}
        kept = [row for row in rows if (row.name, row.backend) not in known]
        return self.model_copy(update={"rows": [*self.rows, *kept]})

    def save(self, path: Path) -> None:
        """Write all of it, the raw windows too."""
        path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> "Report":
        """Read what ``save`` wrote."""
        return cls.model_validate_json(path.read_text(encoding="utf-8"))
