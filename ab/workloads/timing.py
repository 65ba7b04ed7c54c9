"""Timing: operations run one by one, their answers told, their latencies counted.

Answers are told between blocks, never while the clock runs. A latency costs a list's append.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from ab.measuring.measures import Spent
from ab.traces.operations import Operation, Told
from store.errors import StoreError
from store.service.message_store import MessageStore

BLOCK = 256
"""Operations whose answers are one digest; held at once while the clock runs."""
Call = Callable[[], object]


@dataclass(slots=True)
class Ran:
    """What a run of operations took and answered."""

    spent: Spent = field(default_factory=Spent)
    service: list[int] = field(default_factory=list)
    """Nanoseconds of each operation, from its begin."""
    intended: list[int] = field(default_factory=list)
    """The same from when it was due; of an open loop."""
    answers: list[str] = field(default_factory=list)
    items: int = 0

    def tell(self, operation: Operation, answer: object) -> None:
        """Note what an operation answered."""
        text, items = told(operation, answer)
        self.answers.append(text)
        self.items += items


def told(operation: Operation, answer: object) -> Told:
    """Return an answer as text, and its items; a fault is an answer too."""
    if isinstance(answer, StoreError):  # without its path, which is each side's own
        return f"{type(answer).__name__}: {answer.reason}", 0
    return operation.tell(answer)


def run_closed(operations: Sequence[Operation], store: MessageStore) -> Ran:
    """Run one operation after the other, as fast as they go."""
    ran = Ran()
    for first in range(0, len(operations), BLOCK):
        part = operations[first : first + BLOCK]
        calls = [operation.bind(store) for operation in part]
        answers: list[object] = []
        with ran.spent.timed():
            run_calls(calls, answers, ran.service)
        for operation, answer in zip(part, answers, strict=True):
            ran.tell(operation, answer)
    return ran


def run_calls(calls: Sequence[Call], answers: list[object], service: list[int]) -> None:
    """Run ``calls``; add their answers, and their nanoseconds."""
    now = time.perf_counter_ns
    for call in calls:
        began = now()
        try:
            answer = call()
        except StoreError as exc:
            answer = exc
        service.append(now() - began)
        answers.append(answer)


def run_open(operations: Sequence[Operation], due: Sequence[float], store: MessageStore) -> Ran:
    """Run each operation when it is due, ``due`` seconds from the begin, or as soon after as goes.

    One at a time: who waits for the one before has waited since it was due.
    """
    ran = Ran()
    calls = [operation.bind(store) for operation in operations]
    answers: list[object] = []
    now = time.perf_counter_ns
    with ran.spent.timed():
        start = now()
        for call, seconds in zip(calls, due, strict=True):
            wanted = start + int(seconds * 1e9)
            while (left := (wanted - now()) / 1e9) > 0:
                time.sleep(left)  # not spinning: that would keep the interpreter from the flushes
            run_calls((call,), answers, ran.service)
            ran.intended.append(now() - wanted)
    for operation, answer in zip(operations, answers, strict=True):
        ran.tell(operation, answer)
    return ran


def digests(answers: Sequence[str]) -> list[str]:
    """Return a digest of each block of answers."""
    found = []
    for first in range(0, len(answers), BLOCK):
        text = "\n".join(answers[first : first + BLOCK])
        found.append(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest())
    return found
