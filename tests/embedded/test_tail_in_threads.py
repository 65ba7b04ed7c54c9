"""Tails that threads read by ``for``: the rules of groups and commits are those of tasks."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cqstore
from cqstore import EmbeddedLog, StoreClosedError, StoreStateError
from cqstore.embedded.one_reader import OneReader
from tests.kit.beside_child import CONFIG as BESIDE
from tests.kit.logs import BACKENDS, opened
from tests.kit.waiting import run, until

SECONDS = 60
"""After which a test gives up waiting."""


def fill(log: EmbeddedLog, numbers: range, tags: str | None = None) -> None:
    for number in numbers:
        log.put("t", b"%d" % number, tags=tags)


def is_waiting(tail: OneReader[cqstore.TailMessage]) -> Callable[[], bool]:
    return lambda: tail._wait is not None  # type: ignore[attr-defined]


def test_what_is_there_comes_and_then_what_is_put(tmp_path: Path) -> None:
    for backend in BACKENDS:
        with opened(tmp_path / backend, backend) as log, ThreadPoolExecutor() as pool:
            fill(log, range(100))
            with log.tail("t", group="g") as tail:
                given = tail.messages(SECONDS)
                assert [int(next(given).body) for _ in range(100)] == [*range(100)]
                waiting = pool.submit(next, given)
                until(is_waiting(tail))
                fill(log, range(100, 101))
                assert waiting.result(SECONDS).body == b"100"
            assert sum(log.committed("g", "t").values()) == 101


def test_a_for_loop_and_a_task_share_one_place(tmp_path: Path) -> None:
    async def one() -> bytes:
        async with log.tail("t", group="g") as tail:
            return (await anext(tail)).body

    with opened(tmp_path, queues=1) as log:
        fill(log, range(3))
        with log.tail("t", group="g") as tail:
            for message in tail:
                assert message.body == b"0"
                break
        assert run(one()) == b"1"
        with pytest.raises(ZeroDivisionError), log.tail("t", group="g") as tail:
            _ = len(next(iter(tail)).body) // 0
        assert log.committed("g", "t") == {0: 2}


@pytest.mark.parametrize("tags", ["*", "none"])
def test_a_timeout_ends_the_loop_and_the_tail_goes_on(tmp_path: Path, tags: str) -> None:
    with opened(tmp_path, queues=1) as log:
        fill(log, range(2), tags="a")
        with log.tail("t", group="g", tags=tags) as tail:
            found = [message.body for message in tail.messages(timeout=0.01)]
            assert found == ([b"0", b"1"] if tags == "*" else [])
            assert [*tail.messages(timeout=0)] == [*tail.messages(timeout=-1)] == []
            assert log.committed("g", "t") == {0: 2}
            fill(log, range(2, 3), tags="none")
            assert [message.body for message in tail.messages(timeout=0)] == [b"2"]
        with pytest.raises(ValueError, match="timeout is nan"):
            tail.messages(timeout=float("nan"))
        with pytest.raises(TypeError, match="timeout is 'x', str"):
            tail.messages(timeout="x")  # type: ignore[arg-type]


def test_a_close_by_another_thread_ends_the_loop(tmp_path: Path) -> None:
    with opened(tmp_path) as log, ThreadPoolExecutor() as pool:
        tail = log.tail("t", group="g")
        waiting = pool.submit(list, tail)
        until(is_waiting(tail))
        with pytest.raises(StoreStateError, match="another task or thread"):
            next(iter(tail))
        tail.close()
        assert waiting.result(SECONDS) == []
        assert [*tail] == []


def test_the_end_of_the_log_is_an_error_where_it_is_waited_for(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        log = opened(tmp_path)
        tail = log.tail("t", group="g")
        waiting = pool.submit(list, tail)
        until(is_waiting(tail))
        log.close()
        with pytest.raises(StoreClosedError):
            waiting.result(SECONDS)


def test_threads_of_a_group_share_the_queues_and_take_over(tmp_path: Path) -> None:
    """Each message once, while consumers come, stop amid the messages, and are closed."""
    drawn, total = random.Random(42), 600
    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def consume(limit: int) -> int:
        count = 0
        with log.tail("t", group="g") as tail:
            for message in tail.messages(timeout=1 if limit == total else SECONDS):
                with lock:
                    seen[message.body] += 1
                count += 1
                if count == limit:
                    break
        return count

    with opened(tmp_path) as log, ThreadPoolExecutor(8) as pool:
        putting = pool.submit(fill, log, range(total))
        limits = [drawn.randrange(1, 40) for _ in range(4)]
        consumers = [pool.submit(consume, limit) for limit in limits]
        counts = [each.result(SECONDS) for each in consumers]
        putting.result(SECONDS)
        assert counts == limits
        counts.append(consume(total))
        assert sum(counts) == total
        assert seen == Counter(b"%d" % number for number in range(total))
        assert sum(log.committed("g", "t").values()) == total


def test_a_thread_follows_a_log_that_another_opening_writes(tmp_path: Path) -> None:
    with cqstore.open(tmp_path, config=BESIDE, queues=3) as log, ThreadPoolExecutor() as pool:
        fill(log, range(5))
        log.flush()
        with cqstore.open(tmp_path, config=BESIDE, read_only=True) as reader:
            tail = reader.tail("t", poll_seconds=0.001)
            assert [int(each.body) for each in tail.messages(timeout=0)] == [*range(5)]
            waiting = pool.submit(next, tail.messages(SECONDS))
            until(lambda: tail._is_reading)
            fill(log, range(5, 6))
            assert waiting.result(SECONDS).body == b"5"
            ending = pool.submit(list, tail)
            until(lambda: tail._is_reading)
            tail.close()
            assert ending.result(SECONDS) == []
            tail = reader.tail("t")
        with pytest.raises(StoreClosedError):
            next(iter(tail))
