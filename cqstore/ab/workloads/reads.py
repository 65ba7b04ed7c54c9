"""Workloads that only read, or that run a given trace."""

from itertools import cycle, islice
from typing import ClassVar

from numpy.random import Generator

from cqstore.ab.stores.side_store import SideStore
from cqstore.ab.stores.store_survey import StoreSurvey
from cqstore.ab.trace import derived
from cqstore.ab.trace.operations import Operation, read_trace
from cqstore.ab.workloads.base import Setting, Turn, TurnResult, Workload
from cqstore.ab.workloads.timing import run_closed, run_open


class ReadWorkload(Workload):
    """Read operations of one kind."""

    needs_messages: ClassVar[bool] = True
    paced: ClassVar[bool] = True

    def __init__(self, name: str, what: str, item: str, derive: derived.Derivation) -> None:
        """``derive`` makes the operations from the store."""
        self.name = name
        self.what = what
        self.item = item
        self._derive = derive
        self._operations: list[Operation] = []

    def unsupported_reason(self, found: StoreSurvey) -> str:
        """Return a reason if there are no messages, or no tags for a filter."""
        reason = super().unsupported_reason(found)
        if not reason and self._derive is derived.filtered_pulls and not found.tags:
            return (
                "no tag filter matches about 1 % of the store's messages"
                f" (closest: {found.tags_share:.1%})"
            )
        return reason

    def derive(self, found: StoreSurvey, draw: Generator, count: int) -> list[Operation]:
        """Draw ``count`` operations from the surveyed store."""
        return self._derive(found, draw, count)

    def begin(self, side: SideStore, setting: Setting) -> None:
        """Read the operations of the trace into memory."""
        assert setting.trace is not None
        self._operations = read_trace(setting.trace).operations

    def turn(self, side: SideStore, setting: Setting, turn: Turn) -> TurnResult:
        """Run the next operations; after the last one, start again from the first."""
        operations = self.slice(turn)
        if setting.offered is not None:
            moments = due(operations, setting)
            ran = run_open(operations, moments, side.store, setting.readers)
            done = TurnResult.of(ran, operations)
            done.due_seconds = moments[-1] * len(moments) / max(len(moments) - 1, 1)
            return done
        return TurnResult.of(run_closed(operations, side.store), operations)

    def slice(self, turn: Turn) -> list[Operation]:
        """Return the operations of a turn."""
        first = turn.number * turn.count % len(self._operations)
        return list(islice(cycle(self._operations), first, first + turn.count))

    def end(self, side: SideStore, setting: Setting) -> None:
        """Release the memory of the operations."""
        self._operations = []


class GivenTrace(ReadWorkload):
    """The operations of a given or recorded trace, in order."""

    needs_messages: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__("trace", "Run the next operation of the trace.", "items", lambda *_: [])


def due(operations: list[Operation], setting: Setting) -> list[float]:
    """Return the due time of each operation, in seconds from the first.

    With the times of a trace, an operation without a time is due with its predecessor; so is the
    first operation when the trace starts again.
    """
    if setting.rate is not None:
        return [number / setting.rate for number in range(len(operations))]
    moments: list[float] = []
    moment, before = 0.0, None
    for operation in operations:
        if operation.at is not None:
            if before is not None:
                moment += max(operation.at - before, 0.0) / (setting.speed or 1.0)
            before = operation.at
        moments.append(moment)
    return moments


READS = (
    ReadWorkload(
        "tail-pull",
        "Pull up to 32 of the newest messages of a hot queue.",
        "messages",
        derived.tail_pulls,
    ),
    ReadWorkload(
        "catch-up-pull",
        "Pull the next 32 messages of a queue that is read from its beginning.",
        "messages",
        derived.catch_up_pulls,
    ),
    ReadWorkload(
        "random-pull",
        "Pull 32 messages from anywhere in the store.",
        "messages",
        derived.random_pulls,
    ),
    ReadWorkload(
        "filtered-pull",
        "Pull with a tag filter that matches about 1 % of the messages.",
        "messages",
        derived.filtered_pulls,
    ),
    ReadWorkload(
        "time-search", "Find the offset for a store time.", "offsets", derived.time_searches
    ),
    ReadWorkload(
        "lag-estimate",
        "Estimate how many messages a group has not received.",
        "estimates",
        derived.lag_estimates,
    ),
    ReadWorkload(
        "offsets", "Get the min or max offset of a queue.", "offsets", derived.offset_questions
    ),
    ReadWorkload(
        "list-topic",
        "List the queues of one topic with their offsets.",
        "queues",
        derived.topic_listings,
    ),
    ReadWorkload(
        "list-all",
        "List all queues with their offsets, or all topics.",
        "queues and topics",
        derived.full_listings,
    ),
)
