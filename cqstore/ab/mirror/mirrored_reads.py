"""Mirrored reads: a read, its answer, and how to repeat it on a backend.

An answer is a plain value: the units that a pull read from its queue, or a number. If a backend
fails, its answer is the kind of the error.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from time import perf_counter_ns
from typing import NamedTuple

from cqstore.ab.mirror.moments import Moment
from cqstore.ab.trace.operation_lines import StoreOp
from cqstore.store.errors import StoreClosedError, StoreError
from cqstore.store.queue.consume_queue import ConsumeQueue, PulledUnits
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import CqUnit, QueueKey, UnitBlock
from cqstore.store.service.reading.read_interceptor import QueueQuestion

BackendPair = tuple[ConsumeQueueStore, ConsumeQueueStore]
"""The backend that answers, the *reference*, and the one that should answer alike, the *other*."""
UnitRow = tuple[int, int, int | None]
"""Phy offset, size and tags code of one unit."""

_ReadBlock = tuple[int, int, UnitBlock]
"""Queue offset and number of requested units, and the block that was read."""


class FailedAnswer(NamedTuple):
    """The answer of a backend that raised an error."""

    error: str
    """The class of the error: file names in its message differ between backends."""


class PullAnswer(NamedTuple):
    """The answer to a pull: what was read of its queue."""

    low: int
    high: int
    """Minimum and maximum of the queue."""
    first: int
    """Queue offset of the first row; the others follow without a gap."""
    rows: tuple[UnitRow, ...]

    def at(self, queue_offset: int) -> UnitRow | None:
        """Return the unit at an offset, ``None`` if it was not read."""
        index = queue_offset - self.first
        return self.rows[index] if 0 <= index < len(self.rows) else None


Answer = PullAnswer | int | FailedAnswer


class MirroredRead(ABC):
    """A read that the reference has answered, to be repeated on the other backend.

    Created in the reader's thread; the mirror's thread repeats it.
    """

    def __init__(self, op: StoreOp, key: QueueKey, sides: BackendPair, moment: Moment) -> None:
        """``moment`` was taken before the answer."""
        self.op, self.key, self.sides, self.moment = op, key, sides, moment
        self.nanoseconds = 0
        """How long the reference took, in the reader's thread."""

    @property
    @abstractmethod
    def answer(self) -> Answer:
        """Return what the reference answered."""

    @property
    @abstractmethod
    def arguments(self) -> Mapping[str, object]:
        """Return the arguments of the read, named as in operation lines."""

    @abstractmethod
    def _read(self, queues: ConsumeQueueStore) -> Callable[[], Answer]:
        """Read from the queue, timed; return a function that makes a plain value of the answer."""

    def read_from(self, queues: ConsumeQueueStore) -> tuple[Answer, int]:
        """Repeat the read on a backend; return its answer and the time in nanoseconds.

        Raises:
            StoreClosedError: the store is being closed.
        """
        began = perf_counter_ns()
        try:
            to_answer = self._read(queues)
            spent = perf_counter_ns() - began
            return to_answer(), spent
        except StoreClosedError:
            raise
        except StoreError as exc:
            return FailedAnswer(type(exc).__name__), perf_counter_ns() - began


class NumberRead(MirroredRead):
    """A read that returns a number: min or max offset, time search, or estimate."""

    def __init__(self, question: QueueQuestion, sides: BackendPair, moment: Moment) -> None:
        key = QueueKey(question.topic, question.queue_id)
        super().__init__(StoreOp(question.op), key, sides, moment)
        self._question = question
        self._answer: int | FailedAnswer = 0

    def first(self) -> int:
        """Read from the reference, for the reader."""
        began = perf_counter_ns()
        try:
            self._answer = answer = self._question.ask(self.sides[0].queue(*self.key))
        except StoreError as exc:
            self._answer = FailedAnswer(type(exc).__name__)
            raise
        self.nanoseconds = perf_counter_ns() - began
        return answer

    @property
    def answer(self) -> Answer:
        """Return the number that the reference gave, or how it failed."""
        return self._answer

    @property
    def arguments(self) -> Mapping[str, object]:
        """Return the arguments of the question, by name."""
        return self._question.arguments

    def _read(self, queues: ConsumeQueueStore) -> Callable[[], Answer]:
        number = self._question.ask(queues.queue(*self.key))
        return lambda: number


class PullRead(MirroredRead):
    """The reads of a pull. A ``Puller`` uses it in place of the queue."""

    def __init__(self, key: QueueKey, sides: BackendPair, moment: Moment, resolves: bool) -> None:  # noqa: FBT001
        """``resolves``: tags codes may be addresses, which differ between backends."""
        super().__init__(StoreOp.PULL, key, sides, moment)
        self._resolves = resolves
        self._low = self._high = 0
        self._blocks: list[_ReadBlock] = []
        self._failed: FailedAnswer | None = None

    # ---- being the queue of a puller

    @cached_property
    def _queue(self) -> ConsumeQueue:
        return self.sides[0].queue(*self.key)

    def pull(self, queue_offset: int, max_count: int) -> PulledUnits:
        """Read from the queue, and keep the answer."""
        began = perf_counter_ns()
        pulled = self._queue.pull(queue_offset, max_count)
        self.nanoseconds += perf_counter_ns() - began
        self._low, self._high, block = pulled
        if block is not None and self._low <= queue_offset < self._high:
            self._blocks.append((queue_offset, min(max_count, self._high - queue_offset), block))
        return pulled

    def ends(self) -> tuple[int, int]:
        """Read from the queue, and keep the answer."""
        began = perf_counter_ns()
        self._low, self._high = ends = self._queue.ends()
        self.nanoseconds += perf_counter_ns() - began
        return ends

    def read_units(self, queue_offset: int, max_count: int) -> UnitBlock:
        """Read from the queue, and keep the block."""
        began = perf_counter_ns()
        block = self._queue.read_units(queue_offset, max_count)
        self.nanoseconds += perf_counter_ns() - began
        self._blocks.append((queue_offset, max_count, block))
        return block

    def iterate(self, queue_offset: int) -> Iterator[CqUnit]:
        """Read from the queue; batch queues are not mirrored."""
        return self._queue.iterate(queue_offset)

    def resolve_tags_code(self, tags_code: int) -> int | None:
        """Have the reference's queue resolve an address."""
        return self._queue.resolve_tags_code(tags_code)

    def fail(self, exc: StoreError) -> None:
        """Record that the pull failed."""
        self._failed = FailedAnswer(type(exc).__name__)

    # ---- being mirrored

    @property
    def answer(self) -> Answer:
        """Return what the reference's queue gave the pull, or how it failed."""
        if self._failed is not None:
            return self._failed
        return self._answer_of(self._queue, self._low, self._high, self._blocks)

    @property
    def arguments(self) -> Mapping[str, object]:
        """Return the first queue offset and the number of units."""
        if not self._blocks:
            return {}
        return {"offset": self._blocks[0][0], "count": sum(limit for _, limit, _ in self._blocks)}

    def _read(self, queues: ConsumeQueueStore) -> Callable[[], Answer]:
        """Read the same units as the pull; return a function that makes the answer."""
        queue = queues.queue(*self.key)
        low, high = queue.ends()
        blocks: list[_ReadBlock] = []
        for first, limit, _ in self._blocks:
            at, end = max(first, low), first + limit  # what has expired may be there or not
            if at < end:
                blocks.append((at, end - at, queue.read_units(at, end - at)))
        return lambda: self._answer_of(queue, low, high, blocks)

    def _answer_of(
        self, queue: ConsumeQueue, low: int, high: int, blocks: list[_ReadBlock]
    ) -> PullAnswer:
        """Return the units of the blocks, up to the first incomplete block."""
        rows: list[UnitRow] = []
        for _, limit, block in blocks:
            rows += block.rows()
            if block.count < limit:
                break  # what follows would not have its own offset
        if self._resolves:
            rows = [(at, size, queue.resolve_tags_code(code or 0)) for at, size, code in rows]
        return PullAnswer(low, high, blocks[0][0] if blocks else 0, tuple(rows))
