"""What a workload is: derived in the parent, run turn by turn in the process of each side."""

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
"""Why a workload that reads messages is not supported."""


class Setting(BaseModel):
    """What the processes of all sides get of a workload, alike; it is sent to them as JSON."""

    trace: Path | None = None
    """Its operations, a line each."""
    keys: list[tuple[str, int]] = []
    """Some queues, any as likely as any other."""
    lengths: list[int] = []
    """How many messages each of these has."""
    body_bytes: int = 0
    file_size: int = 0
    """Of a log file."""
    min_phy_offset: int = 0
    max_phy_offset: int = 0
    """Of the original's log; the sides' own may have grown."""
    readers: int = 1
    """Threads that read at once: of a mixed workload, and of an open loop."""
    rate: float | None = None
    """Open loop: operations a second; closed if neither this nor ``speed`` is given."""
    speed: float | None = None
    """Open loop at the times of the trace, so many times as fast."""
    trace_rate: float = 0.0
    """Operations a second by the times of the trace; 0 without times."""

    @property
    def offered(self) -> float | None:
        """Return how many operations a second are due, about; ``None``: a closed loop."""
        if self.rate is not None:
            return self.rate
        return None if self.speed is None else self.speed * self.trace_rate


@dataclass(slots=True)
class Turn:
    """One turn as a side runs it."""

    number: int
    """Of its kind: sides that have the same number do the same."""
    count: int
    """Operations."""


@dataclass(slots=True)
class TurnResult(OperationsRun):
    """What a turn took, answered, and was asked."""

    asked: Sequence[Operation | dict[str, int | str]] = field(default_factory=list)
    operations: int = 0
    due_seconds: float = 0.0
    """Open loop: from the first moment to when the next operation would be due."""

    @classmethod
    def of(
        cls, ran: OperationsRun, asked: Sequence[Operation | dict[str, int | str]]
    ) -> "TurnResult":
        """Return what ``ran``, with what was asked, an operation an answer."""
        return cls(ran.spent, ran.service, ran.intended, ran.answers, ran.items, asked, len(asked))


class Workload(ABC):
    """A named workload; ``derive``, ``unsupported_reason`` are the parent's, the rest a side's."""

    name: str
    what: str
    """What one operation is, a sentence."""
    item: str
    needs_open: ClassVar[bool] = True
    """The side's store is open while it runs; else it is closed."""
    scales: ClassVar[bool] = True
    """A turn has as many operations as fit its time; else ``count`` of them."""
    count: ClassVar[int] = 1
    max_rounds: ClassVar[int] = 1000
    """Rounds beyond these would show little for their time."""
    paced: ClassVar[bool] = False
    """It can be run as an open loop."""
    passes: ClassVar[int] = 2
    """Turns of a side in a round: two for ABBA within it, one where a turn takes long."""

    def unsupported_reason(self, found: StoreSurvey) -> str:
        """Return why the store does not carry this workload; empty if it does."""
        _ = found
        return ""

    def derive(self, found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
        """Return at most ``count`` operations; none for a workload that needs no trace."""
        _ = found, draw, count
        return []

    def begin(self, side: SideStore, setting: Setting) -> None:  # noqa: B027 - most need nothing
        """Make ready for turns; not timed."""

    @abstractmethod
    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Run one turn, and leave the side unchanged, or equal to every other side."""

    def end(self, side: SideStore, setting: Setting) -> None:
        """Leave nothing of the workload behind; not timed."""
        _ = setting
        side.remove_scratch()
