"""A thread that reads a tail is interrupted at any place: no message is lost by it."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import cqstore
from cqstore import EmbeddedLog, StoreStateError
from tests.kit.beside_child import CONFIG as BESIDE
from tests.kit.interrupts import Interrupted, first_places, run_interrupted
from tests.kit.logs import opened

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def fill(log: EmbeddedLog, numbers: range) -> None:
    for number in numbers:
        log.put("t", b"%d" % number)


def test_an_interrupt_anywhere_leaves_a_tail_that_goes_on(tmp_path: Path) -> None:
    """At each place where a handler may raise, in a read that waits: nothing is lost by it."""
    with opened(tmp_path, queues=1) as log:

        def step(group: str) -> Callable[[], list[bytes]]:
            tail = log.tail("t", group=group, auto_commit=False)
            return lambda: [message.body for message in tail.messages(timeout=0.001)]

        fill(log, range(3))
        numbers = first_places(step("first"))
        assert len(numbers) > 30
        for number in numbers[::3]:
            tail = log.tail("t", group=f"g{number}")
            found: list[bytes] = []
            try:
                given = (each.body for each in tail.messages(0.001))
                run_interrupted(partial(found.extend, given), number)
            except Interrupted:
                found += [each.body for each in tail.messages(timeout=0)]
            tail.close()
            rest = log.tail("t", group=f"g{number}")
            found += [each.body for each in rest.messages(timeout=0)]
            rest.close()
            assert {*found} == {b"0", b"1", b"2"}, number
            assert not log._members["t", f"g{number}"].has_any


def test_an_interrupted_reader_without_a_group_says_that_it_cannot_go_on(tmp_path: Path) -> None:
    with cqstore.open(tmp_path, config=BESIDE, queues=1) as log:
        fill(log, range(3))
        log.flush()
    bodies, ends = [b"0", b"1", b"2"], set[str]()
    with cqstore.open(tmp_path, config=BESIDE, read_only=True) as reader:
        first = reader.tail("t")
        numbers = first_places(lambda: [*first.messages(timeout=0)])
        first.close()
        for number in numbers[::3]:
            tail = reader.tail("t")
            found: list[bytes] = []
            given = (each.body for each in tail.messages(timeout=0))
            try:
                run_interrupted(partial(found.extend, given), number)
            except Interrupted:
                try:
                    found += [each.body for each in tail.messages(timeout=0)]
                    ends.add("all")
                except StoreStateError:
                    ends.add("refused")
                    found = bodies
            tail.close()
            assert found == bodies, number
    assert "refused" in ends
