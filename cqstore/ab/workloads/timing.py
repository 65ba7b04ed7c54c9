"""Timing: runs operations, converts their answers to text, and records their latencies.

Answers are converted between blocks, never while the time is measured. Recording a latency costs
one list append.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b

from cqstore.ab.measuring.measures import ResourceUsage
from cqstore.ab.trace.operations import AnswerText, Operation, Put
from cqstore.store.errors import StoreError
from cqstore.store.service.message_store import MessageStore

BLOCK = 256
"""Operations per digest of answers; their answers are in memory at the same time."""
Call = Callable[[], object]


@dataclass(slots=True)
class OperationsRun:
    """Times and answers of a run of operations."""

    spent: ResourceUsage = field(default_factory=ResourceUsage)
    service: list[int] = field(default_factory=list)
    """Nanoseconds of each operation, from its start."""
    intended: list[int] = field(default_factory=list)
    """Nanoseconds from its due time; open loop only."""
    answers: list[str] = field(default_factory=list)
    items: int = 0

    def record(self, operation: Operation, answer: object) -> None:
        """Count one operation, and keep its answer as text."""
        text, items = answer_text(operation, answer)
        self.answers.append(text)
        self.items += items


def answer_text(operation: Operation, answer: object) -> AnswerText:
    """Return an answer as text, and its number of items; an error is an answer too."""
    if isinstance(answer, StoreError):  # without its path, which is each side's own
        return f"{type(answer).__name__}: {answer.reason}", 0
    return operation.to_text(answer)


def run_closed(operations: Sequence[Operation], store: MessageStore) -> OperationsRun:
    """Run one operation after another, as fast as possible."""
    ran = OperationsRun()
    for first in range(0, len(operations), BLOCK):
        part = operations[first : first + BLOCK]
        calls = [operation.bind(store) for operation in part]
        answers: list[object] = []
        with ran.spent.timed():
            run_calls(calls, answers, ran.service)
        for operation, answer in zip(part, answers, strict=True):
            ran.record(operation, answer)
    return ran


def run_calls(calls: Sequence[Call], answers: list[object], service: list[int]) -> None:
    """Run ``calls``; append their answers and their nanoseconds."""
    now = time.perf_counter_ns
    for call in calls:
        began = now()
        try:
            answer = call()
        except StoreError as exc:
            answer = exc
        service.append(now() - began)
        answers.append(answer)


def run_open(
    operations: Sequence[Operation], due: Sequence[float], store: MessageStore, readers: int = 1
) -> OperationsRun:
    """Run each operation when it is due, ``due`` seconds from the start, or as soon as possible.

    ``readers`` threads take the next operation when they are free; waiting time counts from the due
    time. Operations on a topic that is put to run in one more thread, in order, because their
    answers depend on earlier puts.
    """
    count = len(operations)
    ran = OperationsRun(service=[0] * count, intended=[0] * count)
    calls = [operation.bind(store) for operation in operations]
    answers: list[object] = [None] * count
    free, ordered = _lanes(operations)
    lanes = [free] * readers + [ordered] * bool(ordered)

    def run(lane: deque[int]) -> None:
        while (at := _next(lane)) is not None:
            wanted = start + int(due[at] * 1e9)
            while (left := (wanted - now()) / 1e9) > 0:
                time.sleep(left)  # not spinning: that would keep the interpreter from others
            answer: list[object] = []
            took: list[int] = []
            run_calls((calls[at],), answer, took)
            ran.intended[at] = now() - wanted
            answers[at], ran.service[at] = answer[0], took[0]

    now = time.perf_counter_ns
    with ThreadPoolExecutor(len(lanes)) as pool, ran.spent.timed():
        start = now()
        for done in [pool.submit(run, lane) for lane in lanes]:
            done.result()
    for operation, answer in zip(operations, answers, strict=True):
        ran.record(operation, answer)
    return ran


def _lanes(operations: Sequence[Operation]) -> tuple[deque[int], deque[int]]:
    """Return the indexes of unordered operations, and of those that must run in order."""
    written = {each.topic for each in operations if isinstance(each, Put)}
    hang: set[str | None] = {*written, None} if written else set()  # no topic: a list of them all
    free, ordered = deque[int](), deque[int]()
    for at, each in enumerate(operations):
        (ordered if getattr(each, "topic", None) in hang else free).append(at)
    return free, ordered


def _next(lane: deque[int]) -> int | None:
    try:
        return lane.popleft()
    except IndexError:  # another thread may have had the last one
        return None


def digests(answers: Sequence[str]) -> list[str]:
    """Return a digest of each block of answers."""
    found = []
    for first in range(0, len(answers), BLOCK):
        text = "\n".join(answers[first : first + BLOCK])
        found.append(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest())
    return found
