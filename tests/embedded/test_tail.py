"""Tails: each message once and in order, queues shared by consumers, commits, and every end."""

import asyncio
import gc
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cqstore import (
    EmbeddedLog,
    RefusedStoreError,
    StoreClosedError,
    StoreStateError,
    Tail,
    TailMessage,
)
from cqstore.store.errors import StoreFailedError, StoreIOError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.opening.components import components_of
from tests.kit.logs import BACKENDS, opened
from tests.kit.waiting import becomes, run, running_threads

SOON = 0.02


def bodies(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, count)]


def fill(log: EmbeddedLog, count: int, begin: int = 0, topic: str = "t") -> None:
    for body in bodies(count, begin):
        log.put(topic, body)


async def take(tail: Tail, count: int) -> list[TailMessage]:
    """Take so many; the last of them is not committed."""
    return [await anext(tail) for _ in range(count)]


async def drain(log: EmbeddedLog, count: int, **given: Any) -> list[bytes]:
    async with log.tail("t", **{"group": "g", **given}) as tail:
        return [message.body for message in await take(tail, count)]


async def nothing_comes(tail: Tail) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON):
            await anext(tail)


@pytest.mark.parametrize("backend", BACKENDS)
async def test_what_is_there_comes_and_then_what_is_put(tmp_path: Path, backend: str) -> None:
    with opened(tmp_path, backend=backend) as log:
        fill(log, 100)
        async with log.tail("t", group="g") as tail:
            found = await take(tail, 100)
            assert [message.body for message in found] == bodies(100)
            assert {message.queue_id for message in found} == {0, 1, 2, 3}
            await nothing_comes(tail)
            waiting = asyncio.ensure_future(anext(tail))
            await becomes(lambda: tail._wait is not None)
            fill(log, 101, 100)
            message = await waiting
            assert message.body == b"100"
            assert (message.group, message.topic) == ("g", "t")
            other = threading.Thread(target=fill, args=(log, 301, 101))
            other.start()
            rest = await take(tail, 200)
            other.join()
            assert sorted(each.body for each in rest) == sorted(bodies(301, 101))
        assert sum(log.committed("g", "t").values()) == 301


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_group_goes_on_where_it_was_and_another_begins(
    tmp_path: Path, backend: str
) -> None:
    with opened(tmp_path, backend=backend) as log:
        fill(log, 50)
        assert await drain(log, 30) == bodies(30)
    with opened(tmp_path, backend=backend) as log:
        assert await drain(log, 20) == bodies(50, 30)
        assert await drain(log, 50, group="other") == bodies(50)
        async with log.tail("t", group="g") as tail:
            await nothing_comes(tail)


async def test_a_topic_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        found = asyncio.create_task(drain(log, 3))
        await becomes(lambda: log._members)
        fill(log, 3)
        assert sorted(await found) == bodies(3)


async def test_begin_is_for_a_group_that_has_committed_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 20)
        latest = log.tail("t", group="latest", begin="latest")
        fill(log, 24, 20)
        assert [message.body for message in await take(latest, 4)] == bodies(24, 20)
        middle = [message.store_timestamp for message in log.read("t")][10]
        behind = [message.body for message in log.read("t", begin=middle)]
        assert await drain(log, len(behind), group="time", begin=middle) == behind
        assert await drain(log, 24, group="first") == bodies(24)
        fill(log, 28, 24)
        assert await drain(log, 4, group="first", begin="latest") == bodies(28, 24)


async def test_a_group_that_began_at_the_end_misses_nothing_by_a_restart(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 20)
        log.tail("t", group="g", begin="latest").close()
        fill(log, 24, 20)
    with opened(tmp_path) as log:
        assert await drain(log, 4, begin="latest") == bodies(24, 20)


# ---- commits


async def test_a_message_is_committed_when_the_next_is_asked_for(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        fill(log, 5)
        tail = log.tail("t", group="g")
        assert (await anext(tail)).body == b"0"
        assert log.committed("g", "t") == {}
        assert (await anext(tail)).body == b"1"
        assert log.committed("g", "t") == {0: 1}
        tail.close()
        assert log.committed("g", "t") == {0: 1}  # what is not done comes again
        async with log.tail("t", group="g") as again:
            assert (await anext(again)).body == b"1"
        assert log.committed("g", "t") == {0: 2}
        with suppress(ZeroDivisionError):
            async with log.tail("t", group="g") as third:
                await anext(third)
                raise ZeroDivisionError
        assert log.committed("g", "t") == {0: 2}


async def test_without_auto_commit_only_what_is_committed_is_done(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        fill(log, 10)
        async with log.tail("t", group="g", auto_commit=False) as tail:
            found = await take(tail, 8)
            found[4].commit()
            found[2].commit()  # further back: it stays
        assert log.committed("g", "t") == {0: 5}
        assert await drain(log, 5) == bodies(10, 5)
        found[9 - 2].commit()  # of a tail that is closed


async def test_a_commit_behind_the_close_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 1)
        (message,) = await take(log.tail("t", group="g"), 1)
    with pytest.raises(StoreClosedError):
        message.commit()


# ---- several consumers


@pytest.mark.parametrize("consumers", [2, 3, 4, 6])
async def test_consumers_of_a_group_share_the_queues(tmp_path: Path, consumers: int) -> None:
    with opened(tmp_path) as log:
        fill(log, 400)
        seen: list[bytes] = []
        tails: list[Tail] = []

        async def consume() -> None:
            async with log.tail("t", group="g") as tail:
                tails.append(tail)
                async for message in tail:
                    seen.append(message.body)
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(consume()) for _ in range(consumers)]
        await becomes(lambda: len(seen) == 400)
        fill(log, 800, 400)
        await becomes(lambda: len(seen) == 800)
        assert sorted(seen) == sorted(bodies(800))
        owned = [tail.queue_ids for tail in tails if tail.queue_ids]
        assert sorted(each for queue_ids in owned for each in queue_ids) == [0, 1, 2, 3]
        assert len(owned) == min(consumers, 4)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_queue_moves_when_its_consumer_asks_for_the_next_message(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 2)
        fill(log, 10)
        first = log.tail("t", group="g")
        held = await anext(first)
        assert first.queue_ids == [0, 1]
        second = log.tail("t", group="g")
        await nothing_comes(second)  # all are with the first, which is at work
        assert held.body == b"0"
        one = await anext(first)
        assert len(first.queue_ids) == 1
        assert one.queue_id in first.queue_ids
        other = await anext(second)
        assert [other.queue_id] == second.queue_ids != first.queue_ids
        first.close()
        rest = [other.body, *[message.body for message in await take(second, 8)]]
        # What the first one had and had not committed comes again, and nothing else.
        assert sorted({*rest, held.body}) == bodies(10)
        assert len(rest) == len({*rest})
        await nothing_comes(second)


async def test_a_consumer_that_is_let_go_leaves_its_queues(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 20)
        async for message in log.tail("t", group="g"):
            assert message.body == b"0"
            break
        gc.collect()
        assert [each.body for each in await take(log.tail("t", group="g"), 20)] == bodies(20)


async def test_one_that_waits_gets_the_queues_of_one_that_is_closed(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        first = log.tail("t", group="g")
        await nothing_comes(first)
        second = log.tail("t", group="g")
        waiting = asyncio.ensure_future(anext(second))
        await becomes(lambda: second._wait is not None)
        assert second.queue_ids == []
        fill(log, 1)
        assert (await anext(first)).body == b"0"
        first.close()
        assert (await waiting).body == b"0"  # it was not committed


def test_consumers_in_loops_of_several_threads(tmp_path: Path) -> None:
    seen: list[bytes] = []
    with opened(tmp_path) as log:
        fill(log, 200)

        async def consume() -> None:
            async with log.tail("t", group="g") as tail:
                while len(seen) < 600:
                    try:
                        async with asyncio.timeout(SOON):
                            seen.append((await anext(tail)).body)
                    except TimeoutError:
                        continue

        threads = [threading.Thread(target=lambda: run(consume())) for _ in range(3)]
        with running_threads(threads):
            fill(log, 600, 200)
    assert sorted({*seen}) == sorted(bodies(600))
    assert len(seen) == 600


async def test_groups_of_other_topics_and_names_have_nothing_to_do_with_each_other(
    tmp_path: Path,
) -> None:
    with opened(tmp_path) as log:
        fill(log, 4)
        fill(log, 4, topic="u")
        tails = [log.tail(topic, group=group) for topic in "tu" for group in "gh"]
        for tail in tails:
            assert [message.body for message in await take(tail, 4)] == bodies(4)
            assert tail.queue_ids == [0, 1, 2, 3]


# ---- filters


async def test_a_filter_lets_its_tags_through_and_is_one_for_a_group(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        for number in range(100):
            log.put("t", b"%d" % number, tags="rare" if number % 25 == 0 else "common")
        async with log.tail("t", group="g", tags="rare") as tail:
            found = [message.body for message in await take(tail, 4)]
            assert sorted(found) == [b"0", b"25", b"50", b"75"]
            with pytest.raises(RefusedStoreError, match="other consumers read tags 'rare'"):
                log.tail("t", group="g")
            await nothing_comes(tail)
            assert sum(log.committed("g", "t").values()) == 100  # passed over for good
            fill(log, 8)
            log.put("t", b"x", tags="rare")
            assert (await anext(tail)).body == b"x"
        log.tail("t", group="g").close()


async def test_thousands_that_a_filter_holds_back_do_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        log.store.put_messages([Message("t", b"x", 0, {"TAGS": "common"})] * 5000)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        tail, at_reads = log.tail("t", group="g", tags="rare"), list[int]()
        read = tail._read

        def noted(key: QueueKey, cursor: Any) -> None:
            at_reads.append(turns)
            read(key, cursor)

        monkeypatch.setattr(tail, "_read", noted)
        waiting = asyncio.ensure_future(anext(tail))
        await becomes(lambda: log.committed("g", "t") == {0: 5000})
        assert not waiting.done()
        waiting.cancel()
        assert len(at_reads) > 5
        assert len({*at_reads}) > len(at_reads) / 3
        counting.cancel()


async def test_a_tail_that_always_has_something_lets_other_tasks_run(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 300)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        await take(log.tail("t", group="g"), 300)
        assert turns >= 300 // 32 - 1
        counting.cancel()


# ---- ends


async def test_a_close_of_the_log_ends_those_who_wait_with_the_error(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.create_topic("t", 1)
    tails = [log.tail("t", group="g") for _ in range(2)]  # one of them has no queue
    waiting = [asyncio.ensure_future(anext(tail)) for tail in tails]
    await becomes(lambda: all(tail._wait is not None for tail in tails))
    await asyncio.to_thread(log.close)
    for each in waiting:
        with pytest.raises(StoreClosedError):
            await each
    with pytest.raises(StoreClosedError):
        await anext(tails[0])


async def test_a_store_that_fails_ends_those_who_wait(tmp_path: Path) -> None:
    log = opened(tmp_path)
    tail = log.tail("t", group="g")
    waiting = asyncio.ensure_future(anext(tail))
    await becomes(lambda: tail._wait is not None)
    components_of(log.store).state.fail(StoreIOError("the disk refused"))
    with pytest.raises(StoreFailedError, match="the disk refused"):
        await waiting
    log.close()


async def test_a_closed_tail_ends_the_iteration(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        fill(log, 3)
        tail = log.tail("t", group="g")

        async def consume() -> list[bytes]:
            return [message.body async for message in tail]

        task = asyncio.create_task(consume())
        await becomes(lambda: tail._wait is not None)
        tail.close()
        tail.close()
        assert await task == bodies(3)
        assert tail.is_closed
        assert [message async for message in tail] == []


async def test_a_cancelled_wait_loses_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        tail, seen = log.tail("t", group="g"), list[bytes]()
        for number in range(50):
            waiting = asyncio.ensure_future(anext(tail))
            await becomes(lambda: tail._wait is not None)
            if number % 2:
                waiting.cancel()
            log.put("t", b"%d" % number)
            if number % 3 == 0:
                waiting.cancel()
            try:
                seen.append((await waiting).body)
            except asyncio.CancelledError:
                seen.append((await anext(tail)).body)
        assert seen == bodies(50)
        await nothing_comes(tail)


async def test_one_task_at_a_time(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        tail = log.tail("t", group="g")
        waiting = asyncio.ensure_future(anext(tail))
        await becomes(lambda: tail._wait is not None)
        with pytest.raises(StoreStateError, match="another task or thread"):
            await anext(tail)
        fill(log, 1)
        assert (await waiting).body == b"0"


async def test_expired_messages_are_passed_over(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        for number in range(30):
            log.put("t", b"%d" % number * 50_000)
        assert await drain(log, 1) == [b"0" * 50_000]
        files = components_of(log.store).log.files.files()
        assert len(files) > 1
        log.store.delete_expired_files(files[-1].file_from_offset)
        low = log.store.min_offset("t", 0)
        assert low > 1
        rest = await drain(log, 30 - low)
        assert rest == [b"%d" % number * 50_000 for number in range(low, 30)]


async def test_a_damaged_message_is_logged_and_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as log:
        log.create_topic("t", 1)
        fill(log, 3)
        (second,) = log.store.get_message("t", 0, 1, 1).messages()
        file = components_of(log.store).log.current
        assert file is not None
        file.map()[second.phy_offset + 4 : second.phy_offset + 8] = b"\0\0\0\0"
        assert await drain(log, 2) == [b"0", b"2"]
    assert "skipped message 1 of queue 0 of topic 't'" in caplog.text


def test_another_word_for_the_begin_is_refused(tmp_path: Path) -> None:
    wrong: Any = "newest"
    with opened(tmp_path) as log, pytest.raises(RefusedStoreError, match="'newest'"):
        log.tail("t", group="g", begin=wrong)
