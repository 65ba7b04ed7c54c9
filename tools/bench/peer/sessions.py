"""How rows are measured: both sides at work in turn, until each has done all rounds."""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cqstore.store.files import bytes_on_disk
from tools.bench.peer.machine import Beside
from tools.bench.peer.measured import Measured
from tools.bench.peer.sides import OURS, SIDES, Sides, Window
from tools.bench.peer.warming import MAX_SECONDS, Warming, Worker, warm

SETTLE_SECONDS = 0.5
"""After work that writes: the flush threads of the one side would disturb the other."""


class Side(Worker, Protocol):
    """A process, or several that are one side."""

    @property
    def name(self) -> str: ...


class UnequalError(Exception):
    """The two sides did not do the same work, so there is nothing to compare."""


@dataclass(frozen=True)
class Row:
    """One line of work, and its rows: a name a figure."""

    figures: dict[str, str]
    line: str
    each: tuple[str, ...] = ()
    """Done before each round, not measured."""
    first: str = ""
    """The name of the row for the first window of a process; empty without one."""
    same_answers: bool = False
    note: str = ""

    def measured(self, backend: str, rounds: "Rounds") -> Iterator[Measured]:
        """Yield the rows of ``rounds``."""
        if self.first:
            yield Measured(
                name=self.first, backend=backend, kind=next(iter(self.figures)), others=[],
                windows={side: found.windows[:1] for side, found in rounds.warmed.items()},
                note="one window of a process that has just started",
            )  # fmt: skip
        notes = [self.note, *rounds.not_warm()]
        for kind, name in self.figures.items():
            yield Measured(
                name=name, backend=backend, kind=kind, windows=rounds.windows,
                others=rounds.others, failed=rounds.failed, note="; ".join(filter(None, notes)),
            )  # fmt: skip


@dataclass
class Rounds:
    """The windows of both sides."""

    windows: dict[str, list[Window]] = field(default_factory=lambda: {side: [] for side in SIDES})
    others: list[float] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    warmed: dict[str, Warming] = field(default_factory=dict)

    def not_warm(self) -> Iterator[str]:
        """Yield a sentence for each side that was measured before its windows were alike."""
        for side, found in self.warmed.items():
            if not found.is_warm:
                yield (
                    f"{side} was not steady: of its last windows before the rounds the slowest"
                    f" took {found.spread:.2f} times the fastest"
                )

    def add(self, side: Side, line: str) -> Window:
        """Have ``line`` done and measured."""
        beside = Beside()
        with beside.watching():
            window = side.do(line)
        self.windows[side.name].append(window)
        self.others.append(beside.cores(float(window["cpu_seconds"])))
        return window


@dataclass(frozen=True)
class Session:
    """Rows that share two processes, which live through all rounds."""

    backend: str
    rows: tuple[Row, ...]
    settings: dict[str, str]
    filled: int = 0
    """Messages in the stores before they are opened; they were closed cleanly since."""
    warm_seconds: float = MAX_SECONDS
    """A side that is not steady after that is measured as it is."""

    @property
    def figures(self) -> list[str]:
        """Return the names of all rows."""
        return [name for row in self.rows for name in row.figures.values()]

    def run(self, sides: Sides, rounds: int, names: set[str]) -> Iterator[Measured]:
        """Measure the rows of ``names``.

        Raises:
            SideFailedError: a side did not do its work.
            UnequalError: they did not do the same.
        """
        settings = self.settings | {"backend": self.backend}
        with stores(sides), ExitStack() as stack:
            if self.filled:
                for name in SIDES:
                    fill(sides, name, settings, self.filled)
            both = [stack.enter_context(self.opened(sides, name, settings)) for name in SIDES]
            for row in self.rows:
                if names.intersection(row.figures.values()):
                    found = _in_turn(row, both, rounds, self.warm_seconds)
                    yield from row.measured(self.backend, found)
            _same([side.do("totals") for side in both], "units", "log_end")

    @contextmanager
    def opened(self, sides: Sides, name: str, settings: dict[str, str]) -> Iterator[Side]:
        """Start a side and open its store."""
        with sides.running(name, settings) as side:
            side.do("open")
            yield side


def _in_turn(row: Row, both: list[Side], rounds: int, warm_seconds: float) -> Rounds:
    """Warm each side, then have them do the row in turn.

    How many windows warm a side is its own matter; the log of the other goes on as far unmeasured.
    """
    found = Rounds()
    for side in both:
        found.warmed[side.name] = warm(side, row.each, row.line, warm_seconds)
    longest = max(len(each.windows) for each in found.warmed.values())
    for side in both:
        for _ in range(longest - len(found.warmed[side.name].windows)):
            for line in (*row.each, row.line):
                side.do(line)
    for _ in range(rounds):
        windows = []
        for side in both:
            for line in row.each:
                side.do(line)
            time.sleep(SETTLE_SECONDS)
            windows.append(found.add(side, row.line))
        _same(windows, "count", *(["answer"] if row.same_answers else []))
    return found


def _same(windows: list[Window], *names: str) -> None:
    for name in names:
        values = [window[name] for window in windows]
        if len(set(values)) > 1:
            raise UnequalError(f"{name} differs: {dict(zip(SIDES, values, strict=True))}")


@dataclass(frozen=True, kw_only=True)
class _Again:
    """A store is opened again and again, each time by a new process."""

    backend: str
    queues: int
    row: Row
    ours_alone: str = ""
    """Why RocketMQ is not asked; empty if it is."""

    @property
    def figures(self) -> list[str]:
        """Return the names of all rows."""
        return list(self.row.figures.values())

    @property
    def settings(self) -> dict[str, str]:
        """Return what both sides get of the store."""
        return {"backend": self.backend, "queues": str(self.queues)}

    @property
    def measured_sides(self) -> list[str]:
        """Return the sides that are."""
        return [OURS] if self.ours_alone else list(SIDES)

    def results(self, found: Rounds) -> Iterator[Measured]:
        """Yield what was found, and which side was not asked."""
        if self.ours_alone:
            found.failed = {SIDES[1]: self.ours_alone}
        yield from self.row.measured(self.backend, found)


class Openings(_Again):
    """The store was closed cleanly."""

    def run(self, sides: Sides, rounds: int, names: set[str]) -> Iterator[Measured]:
        """Measure; ``names`` are all or some of the row's."""
        _ = names
        found, settings, measured_sides = Rounds(), self.settings, self.measured_sides
        with stores(sides):
            disk = {}
            for name in measured_sides:
                fill(sides, name, settings, 2 * self.queues)
                disk[name] = blocks(sides.store(name) / "consumequeue")
            for _ in range(rounds):
                for name in measured_sides:
                    with sides.running(name, settings) as side:
                        window = found.add(side, "open")
                        window |= {"disk_bytes": disk[name], "queues": self.queues}
                        side.do("close")
        yield from self.results(found)


@dataclass(frozen=True, kw_only=True)
class Replays(_Again):
    """Queues and index are built from a log that both sides have."""

    messages: int

    def run(self, sides: Sides, rounds: int, names: set[str]) -> Iterator[Measured]:
        """Measure; ``names`` are all or some of the row's."""
        _ = names
        found, settings, measured_sides = Rounds(), self.settings, self.measured_sides
        with stores(sides):
            fill(sides, OURS, settings | {"backend": "rocksdb"}, self.messages)
            for name in measured_sides[1:]:
                log = sides.store(OURS) / "commitlog"
                shutil.copytree(log, sides.store(name) / "commitlog")
            lost = 0
            for _ in range(rounds):
                for name in measured_sides:
                    sides.clear(sides.store(name), keep="commitlog")
                    with sides.running(name, settings) as side:
                        window = found.add(side, "open")
                        window["count"] = self.messages
                        units = int(side.do("totals")["units"])
                    lost = max(lost, self._lost(name, units))
        for measured in self.results(found):
            if lost:
                measured.note = f"RocketMQ's queues lack {lost} of {self.messages:,} messages"
            yield measured

    def _lost(self, name: str, units: int) -> int:
        """Return how many messages RocketMQ left out; it is known to lose the log's first one."""
        lost = self.messages - units
        if lost not in ({0} if name == OURS else {0, 1}):
            raise UnequalError(f"{name} has {units} units after a replay of {self.messages}")
        return lost


def fill(sides: Sides, side: str, settings: dict[str, str], messages: int) -> None:
    """Make a store with ``messages``, spread over its queues, and close it."""
    with sides.running(side, settings) as running:
        for line in ("open", f"put {messages}", "close"):
            running.do(line)


@contextmanager
def stores(sides: Sides) -> Iterator[None]:
    """Remove both stores when the block ends."""
    try:
        yield
    finally:
        for side in SIDES:
            sides.clear(sides.store(side))
            sides.clear(sides.slave(side))


def blocks(folder: Path) -> int:
    """Return the bytes on disk of a folder and all in it."""
    return sum(bytes_on_disk(path.lstat()) for path in (folder, *folder.rglob("*")))
