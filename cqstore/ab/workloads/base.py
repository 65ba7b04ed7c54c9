"""Base of workloads: derived in the parent, run turn by turn in the process of each side."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from numpy.random import Generator
from pydantic import BaseModel

from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.ab.trace.operations import Operation
from cqstore.ab.workloads.timing import OperationsRun

NO_MESSAGES = "no queue of the store has a message in the log"
"""Why a workload that needs messages is not supported."""


class Setting(BaseModel):
    """Setting of a workload, the same for all sides; sent to them as JSON."""

    trace: Path | None = None
    """File with its operations, one per line."""
    keys: list[tuple[str, int]] = []
    """Random sample of queues."""
    lengths: list[int] = []
    """Number of messages in each of ``keys``."""
    body_bytes: int = 0
    file_size: int = 0
    """Size of a log file."""
    min_phy_offset: int = 0
    max_phy_offset: int = 0
    """Max phy offset of the original log; the logs of the sides may have grown."""
    readers: int = 1
    """Number of reader threads (mixed workload and open loop)."""
    rate: float | None = None
    """Open loop: operations per second; closed loop if neither this nor ``speed`` is given."""
    speed: float | None = None
    """Open loop at the times of the trace, multiplied by this speed."""
    trace_rate: float = 0.0
    """Operations per second of the trace; 0 if it has no times."""

    @property
    def offered(self) -> float | None:
        """Return the approximate operations per second; ``None`` for a closed loop."""
        if self.rate is not None:
            return self.rate
        return None if self.speed is None else self.speed * self.trace_rate


@dataclass(slots=True)
class Turn:
    """One turn of a side."""

    number: int
    """Number of the turn: sides with the same number run the same operations."""
    count: int
    """Number of operations."""


@dataclass(slots=True)
class TurnResult(OperationsRun):
    """Times, answers and operations of a turn."""

    requests: Sequence[Operation | dict[str, int | str]] = field(default_factory=list)
    operations: int = 0
    due_seconds: float = 0.0
    """Open loop: time from the start to the due time of the next operation."""

    @classmethod
    def of(
        cls, ran: OperationsRun, requests: Sequence[Operation | dict[str, int | str]]
    ) -> "TurnResult":
        """Return ``ran`` as a result, with one operation per answer."""
        return cls(
            ran.spent, ran.service, ran.intended, ran.answers, ran.items, requests, len(requests)
        )


class Workload(ABC):
    """A workload. The parent calls ``derive`` and ``unsupported_reason``, a side the rest."""

    name: str
    what: str
    """Sentence about one operation."""
    item: str
    needs_open: ClassVar[bool] = True
    """Whether the side's store is open while the workload runs."""
    scales: ClassVar[bool] = True
    """Whether a turn has as many operations as fit its time; else ``count``."""
    count: ClassVar[int] = 1
    max_rounds: ClassVar[int] = 1000
    """Maximum number of rounds that are worth their time."""
    paced: ClassVar[bool] = False
    """Whether it can run as an open loop."""
    passes: ClassVar[int] = 2
    """Turns of a side per round: two for ABBA, one if turns are long."""
    needs_messages: ClassVar[bool] = False

    def unsupported_reason(self, found: StoreSurvey) -> str:
        """Return why the store does not support this workload; empty if it does."""
        return NO_MESSAGES if self.needs_messages and not found.keys else ""

    def derive(self, found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
        """Return at most ``count`` operations; none for a workload that needs no trace."""
        _ = found, draw, count
        return []

    def begin(self, side: SideStore, setting: Setting) -> None:  # noqa: B027 - most need nothing
        """Prepare the turns; not timed."""

    @abstractmethod
    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Run one turn, and leave the side unchanged, or equal to every other side."""

    def end(self, side: SideStore, setting: Setting) -> None:
        """Clean up after the workload; not timed."""
        _ = setting
        side.remove_scratch()
