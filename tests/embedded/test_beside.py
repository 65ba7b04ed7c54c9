"""A log that is read beside the process that writes it: refreshed, followed, never torn."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

import cqstore
from cqstore import (
    EmbeddedLog,
    LogMessage,
    ReadOnlyStoreError,
    ReadOnlyTail,
    RefusedStoreError,
    StoreClosedError,
    StoreStateError,
)
from tests.kit.beside_child import CONFIG, FILE_BYTES, Writer
from tests.kit.logged import logged
from tests.kit.tree import tree_digest
from tests.kit.waiting import becomes, run

BACKENDS = ["file", "rocksdb"]
POLL = 0.001


def beside(root: Path) -> EmbeddedLog:
    return cqstore.open(root, config=CONFIG, read_only=True)


def writing(root: Path, backend: str = "file") -> EmbeddedLog:
    return cqstore.open(root, backend=backend, config=CONFIG, queues=3)


async def is_polled(tail: ReadOnlyTail) -> None:
    """Wait until it has looked at the log some more times."""
    poll = tail._follower.poll
    with mock.patch.object(tail._follower, "poll", wraps=poll) as looking:
        await becomes(lambda: looking.call_count > 3)


def put(log: EmbeddedLog, topic: str, first: int, last: int, size: int = 0) -> None:
    for number in range(first, last):
        log.put(topic, b"%d" % number + b" " * size, tags="odd" if number % 2 else "even")


def numbers(messages: Iterator[LogMessage] | list[LogMessage]) -> list[int]:
    return [int(message.body) for message in messages]


async def take(tail: ReadOnlyTail, count: int) -> list[int]:
    return numbers([await anext(tail) for _ in range(count)])


# ---- beside another process


@pytest.mark.parametrize("backend", ["rocksdb", pytest.param("file", marks=pytest.mark.long)])
async def test_beside_another_process(tmp_path: Path, backend: str) -> None:
    """Of what is seen each message is whole, in order, and there once, however both meet."""
    writer = Writer(tmp_path, backend)
    writer.do("put", "t", 0, 50)
    with beside(tmp_path) as log:
        assert numbers(log.read("t")) == [*range(50)]
        before = log.read("t")
        assert int(next(before).body) == 0
        writer.ask("put", "t", 50, 600, 40)  # files more
        async with log.tail("t", poll_seconds=POLL) as tail:
            assert await take(tail, 300) == [*range(300)]  # while it puts
            log.refresh()  # a moment of its own
            seen = numbers(log.read("t"))
            assert seen == [*range(len(seen))]
            assert len(seen) >= 300
            writer.await_answer()
            assert await take(tail, 350) == [*range(300, 650)]
            log.refresh()
            assert numbers(log.read("t")) == [*range(650)]
            assert numbers(before) == [*range(1, 50)]  # as it was
            writer.do("put", "u", 0, 1)
            assert log.topics() == ["t", "u"]
            async with log.tail("t", begin="latest", poll_seconds=POLL) as new:
                writer.do("put", "t", 650, 5)
                assert await take(new, 5) == await take(tail, 5) == [*range(650, 655)]
        writer.close()
        log.refresh()
        assert numbers(log.read("t")) == [*range(655)]


@pytest.mark.parametrize("backend", ["file", pytest.param("rocksdb", marks=pytest.mark.long)])
async def test_beside_expiry_and_deletion_in_another_process(tmp_path: Path, backend: str) -> None:
    writer = Writer(tmp_path, backend)
    writer.do("put", "t", 0, 30, 2000)  # five files
    writer.do("put", "gone", 0, 3)
    with beside(tmp_path) as log, logged("cqstore.embedded"):
        async with log.tail("t", poll_seconds=POLL) as tail:
            assert await take(tail, 2) == [0, 1]
            writer.do("expire")
            log.refresh()
            kept = numbers(log.read("t"))
            assert kept == [*range(30 - len(kept), 30)]
            assert 0 < len(kept) < 10
            writer.do("put", "t", 30, 3)
            last = -1
            while last < 32:  # what expired before it was read is passed over, in order
                (number,) = await take(tail, 1)
                assert number > last
                last = number
        writer.do("delete", "gone")
        writer.do("put", "gone", 7, 2)
        log.refresh()
        assert numbers(log.read("gone")) == [7, 8]
        async with log.tail("gone", poll_seconds=POLL) as tail:
            assert await take(tail, 2) == [7, 8]
        writer.do("delete", "gone")
        log.refresh()
        assert log.topics() == ["t"]
        assert numbers(log.read("gone")) == []
    writer.kill()
    with writing(tmp_path, backend) as log:
        assert numbers(log.read("gone")) == []


# ---- in one process


@pytest.fixture(params=BACKENDS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[EmbeddedLog, ...]]:
    with writing(tmp_path, request.param) as log:
        put(log, "t", 0, 10)
        with beside(tmp_path) as other:
            yield log, other


def test_a_refresh_shows_what_was_put_since(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    log, other = pair
    put(log, "t", 10, 20)
    put(log, "u", 0, 1)
    assert numbers(other.read("t")) == [*range(10)]
    assert numbers(other.read("u")) == []
    store = other.store
    other.refresh()
    assert other.store is not store
    assert numbers(other.read("t")) == [*range(20)]
    assert numbers(other.read("t", tags="odd", queue_ids=[0, 1, 2])) == [*range(1, 20, 2)]
    assert numbers(other.read("u")) == [0]
    with pytest.raises(StoreClosedError):
        store.max_offset("t", 0)
    log.refresh()  # of one that is written nothing
    assert numbers(log.read("t")) == [*range(20)]


def test_reads_by_time_and_queue_behind_the_queues(
    pair: tuple[EmbeddedLog, EmbeddedLog],
) -> None:
    log, other = pair
    every = list(log.read("t"))
    middle = every[5].store_timestamp
    wanted = [int(each.body) for each in every if each.store_timestamp >= middle]
    assert numbers(other.read("t", middle)) == wanted
    assert numbers(other.read("t", end=middle - 1)) == [*range(10 - len(wanted))]
    mine = [int(each.body) for each in every if each.queue_id == 1]
    assert numbers(other.read("t", queue_ids=[1])) == mine
    offsets = [(each.queue_id, each.queue_offset) for each in every]
    assert [(each.queue_id, each.queue_offset) for each in other.read("t")] == offsets


def test_what_is_being_read_goes_on_as_it_was(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    log, other = pair
    reads = [other.read("t") for _ in range(2)]
    firsts = [int(next(each).body) for each in reads]
    stores = [other.store]
    for number in range(10, 13):
        put(log, "t", number, number + 1)
        other.refresh()
        stores.append(other.store)
    assert firsts == [0, 0]
    assert numbers(reads[0]) == [*range(1, 10)]
    stores[0].max_offset("t", 0)  # the other one reads it
    del reads[1]
    for store in stores[:-1]:
        with pytest.raises(StoreClosedError):
            store.max_offset("t", 0)
    assert numbers(other.read("t")) == [*range(13)]


async def test_a_tail_filters_and_waits(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    log, other = pair
    async with other.tail("t", tags="odd", poll_seconds=POLL) as tail:
        assert await take(tail, 5) == [1, 3, 5, 7, 9]
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        assert not waiting.done()
        with pytest.raises(StoreStateError, match="another task or thread"):
            await anext(tail)
        put(log, "t", 10, 14)
        assert int((await waiting).body) == 11
        assert await take(tail, 1) == [13]
        waiting = asyncio.ensure_future(anext(tail))
        await asyncio.sleep(0)
        tail.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
    assert tail.is_closed


async def test_a_tail_begins_at_a_time(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    log, other = pair
    every = list(log.read("t"))
    begin = every[4].store_timestamp
    wanted = [int(each.body) for each in every if each.store_timestamp >= begin]
    tail = other.tail("t", begin=begin, poll_seconds=POLL)
    assert await take(tail, len(wanted)) == wanted


async def test_a_tail_holds_its_store_until_it_has_read_it(
    pair: tuple[EmbeddedLog, EmbeddedLog],
) -> None:
    log, other = pair
    tail = other.tail("t", poll_seconds=POLL)
    store = other.store
    other.refresh()
    assert await take(tail, 10) == [*range(10)]
    store.max_offset("t", 0)
    waiting = asyncio.ensure_future(anext(tail))
    await becomes(lambda: store._shutdown.ended)
    put(log, "t", 10, 11)
    assert int((await waiting).body) == 10
    left = other.tail("t")
    store = other.store
    other.refresh()
    store.max_offset("t", 0)
    del left
    with pytest.raises(StoreClosedError):
        store.max_offset("t", 0)


def test_a_record_that_is_not_whole_is_left_for_the_next_look(tmp_path: Path) -> None:
    with writing(tmp_path) as log:
        put(log, "t", 0, 3)
        at = log.store.max_phy_offset()
        put(log, "t", 3, 4)
        size = log.store.max_phy_offset() - at
        (path,) = [each for each in (tmp_path / "commitlog").iterdir() if each.name == "0" * 20]
        whole = path.read_bytes()[at : at + size]

        def write(data: bytes) -> None:
            with path.open("r+b") as file:
                os.pwrite(file.fileno(), data, at)

        async def story() -> None:
            # The head comes last; then one whose body is not there yet, as a disk may show it.
            for torn in (
                bytes(8) + whole[8:],
                whole[:-20] + bytes(20),
                whole[:40] + bytes(size - 40),
            ):
                write(torn)
                with beside(tmp_path) as other:
                    assert numbers(other.read("t")) == [0, 1, 2] or torn[:8] == whole[:8]
                    tail = other.tail("t", poll_seconds=POLL)
                    assert await take(tail, 3) == [0, 1, 2]
                    waiting = asyncio.ensure_future(anext(tail))
                    await is_polled(tail)
                    assert not waiting.done()
                    write(whole)
                    assert int((await waiting).body) == 3

        run(story())


async def test_a_log_that_was_cut_back_ends_the_tail(tmp_path: Path) -> None:
    log = writing(tmp_path)
    put(log, "t", 0, 3)
    with beside(tmp_path) as other:
        tail = other.tail("t", poll_seconds=POLL)
        put(log, "t", 3, 4)
        assert await take(tail, 4) == [0, 1, 2, 3]
        log.close()
        with (tmp_path / "commitlog" / ("0" * 20)).open("r+b") as file:
            file.write(bytes(FILE_BYTES))
        with pytest.raises(RefusedStoreError, match="the log was truncated"):
            await anext(tail)


def test_a_close_ends_reads_and_tails(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    _, other = pair
    begun, later = other.read("t"), other.read("t")
    next(begun)
    tail = other.tail("t", poll_seconds=POLL)
    assert run(take(tail, 10)) == [*range(10)]
    other.refresh()
    other.close()
    other.close()
    with pytest.raises(StoreClosedError):
        run(take(tail, 1))
    for each in (begun, later):
        with pytest.raises(StoreClosedError):
            list(each)
    for ask in (other.refresh, other.topics, lambda: other.tail("t")):
        with pytest.raises(StoreClosedError):
            ask()


def test_a_refresh_that_fails_leaves_the_log_as_it_was(
    pair: tuple[EmbeddedLog, EmbeddedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = pair
    assert other._snapshots is not None

    def fail() -> cqstore.MessageStore:
        raise RefusedStoreError("not now")

    monkeypatch.setattr(other._snapshots, "_open_again", fail)
    with pytest.raises(RefusedStoreError, match="not now"):
        other.refresh()
    assert numbers(other.read("t")) == [*range(10)]


def test_what_is_refused(pair: tuple[EmbeddedLog, EmbeddedLog]) -> None:
    log, other = pair
    with pytest.raises(
        ReadOnlyStoreError, match="only the process that writes the log can use groups"
    ):
        other.tail("t", group="g")
    with pytest.raises(RefusedStoreError, match="no group given"):
        log.tail("t")
    for seconds in (0, -1, float("nan")):
        with pytest.raises(RefusedStoreError, match="invalid poll_seconds"):
            other.tail("t", poll_seconds=seconds)


async def test_a_log_that_is_read_stays_as_it_is(tmp_path: Path) -> None:
    with writing(tmp_path) as log:
        put(log, "t", 0, 30, 2000)
    before = tree_digest(tmp_path)
    with beside(tmp_path) as other:
        async with other.tail("t", poll_seconds=POLL) as tail:
            other.refresh()
            assert await take(tail, 30) == [*range(30)]
    assert tree_digest(tmp_path) == before
