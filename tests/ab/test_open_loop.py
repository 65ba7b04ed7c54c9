"""An open loop: several readers, and the order of what hangs on puts."""

import threading
from pathlib import Path

import pytest

from cqstore.ab.trace.operations import ListQueues, ListTopics, MaxOffset, Operation, Put
from cqstore.ab.workloads.timing import run_open
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from tests.ab.made_store import CONFIG


class Meeting:
    """A store whose first operation ends when the last has been asked; it notes their order."""

    def __init__(self, last: int) -> None:
        self.order: list[tuple[str, int]] = []
        self._last, self._met = last, threading.Event()

    def max_offset(self, topic: str, queue_id: int) -> int:
        self.order.append((topic, queue_id))
        if queue_id == self._last:
            self._met.set()
        if queue_id == 0:
            assert self._met.wait(30), "nobody else goes on"
        return queue_id

    def put_message(self, message: Message) -> int:
        return self.max_offset(message.topic, message.queue_id)


def test_an_open_loop_goes_on_while_one_reader_waits() -> None:
    operations: list[Operation] = [MaxOffset(topic="t", queue_id=at) for at in range(20)]
    store = Meeting(last=19)
    ran = run_open(operations, [0.0] * 20, store, readers=2)  # type: ignore[arg-type]
    assert ran.answers == [str(at) for at in range(20)], "in the order they were due"
    assert ran.service[0] == max(ran.service)
    assert all(late >= took > 0 for late, took in zip(ran.intended, ran.service, strict=True))


def test_what_hangs_on_a_put_keeps_its_order_while_all_else_goes_on() -> None:
    hanging: list[Operation] = [
        Put(topic="t"), MaxOffset(topic="t", queue_id=1), Put(topic="t", queue_id=2),
        MaxOffset(topic="t", queue_id=3),
    ]  # fmt: skip
    others: list[Operation] = [MaxOffset(topic="u", queue_id=at) for at in range(4, 9)]
    store = Meeting(last=8)
    ran = run_open([*hanging, *others], [0.0] * 9, store, readers=3)  # type: ignore[arg-type]
    assert [queue for topic, queue in store.order if topic == "t"] == [0, 1, 2, 3]
    assert store.order.index(("u", 8)) < store.order.index(("t", 1))
    assert ran.answers == [str(at) for at in range(9)]


def test_listings_hang_on_puts_too(tmp_path: Path) -> None:
    lists: list[Operation] = [ListTopics(), ListQueues()]
    puts: list[Operation] = [Put(topic=f"t{at}", size=1) for at in range(60)]
    operations = [each for put in puts for each in (put, *lists)]
    with MessageStore.open(tmp_path / "s", CONFIG) as store:
        ran = run_open(operations, [0.0] * len(operations), store, readers=4)
    assert [text.split()[0] for text in ran.answers[1::3]] == [str(at) for at in range(1, 61)]
    assert [text.split()[0] for text in ran.answers[2::3]] == [str(at) for at in range(1, 61)]


def test_a_fault_of_a_reader_is_not_lost() -> None:
    operations: list[Operation] = [MaxOffset(topic="t")]
    with pytest.raises(AttributeError):
        run_open(operations, [0.0], Faulty(), readers=2)  # type: ignore[arg-type]


class Faulty:
    """A store with a fault of its own, no answer."""

    def max_offset(self, topic: str, queue_id: int) -> int:
        return self.nothing  # type: ignore[attr-defined,no-any-return]
