"""Waits for arrivals, and listeners: no thread flushes here, so what comes comes by them alone."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from cqstore import (
    Arrival,
    ArrivalBatch,
    Message,
    MessageStore,
    QueueKey,
    ReadOnlyStoreError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
    StoreStateError,
)
from cqstore.store.errors import NestedCallError, StoreIOError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.service.dispatching import arrivals
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import config as combined_config
from tests.kit.faults import ENOSPC, Faults
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.logged import logged
from tests.kit.own_threads import own_threads
from tests.kit.quiet_config import quiet_config
from tests.kit.reput import running, use_always
from tests.kit.waiting import becomes, run, running_threads, until

LIMIT = 64
CONFIG = quiet_config(
    mapped_file_size_commit_log=1 << 20, dispatch_slice=LIMIT, rocksdb_memory_bytes=16 << 20,


    enable_lmq=True, enable_multi_dispatch=True,
)  # fmt: skip
KINDS = ["file", "rocksdb", "combined", "reput"]
THREAD, LISTENER = "cqstore-arrivals", "cqstore-listener"
SECONDS = 600.0
"""Longer than ``running`` waits for its thread: what is not woken is a failure, not late."""
SOON = 0.02
"""Seconds in which what never comes does not come."""


def opened(root: Path, kind: str) -> MessageStore:
    if kind == "combined":
        return MessageStore.open(root, combined_config("rocksdb"), housekeeping=False)
    backend = "file" if kind == "reput" else kind
    store = MessageStore.open(root, CONFIG, backend=backend, housekeeping=False)
    if kind == "reput":
        use_always(store)
    return store


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "s", request.param) as made:
        yield made


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[MessageStore]:
    with opened(tmp_path / "p", "file") as made:
        yield made


def put(store: MessageStore, count: int = 1, queue_id: int = 0, topic: str = "t") -> None:
    for _ in range(count):
        assert store.put_message(Message(topic, b"x", queue_id, {"TAGS": "a"})).ok


def is_idle(store: MessageStore) -> bool:
    service = components_of(store).dispatcher.arrivals
    return not service.is_active and not service._waits


def is_waited_for(store: MessageStore, count: int = 1) -> bool:
    waits = components_of(store).dispatcher.arrivals._waits.values()
    return sum(len(each) for by_offset in waits for each in by_offset.values()) == count


# ---- a thread waits


def test_a_put_wakes_the_thread_that_waits_for_it(store: MessageStore) -> None:
    put(store, 3)
    assert store.wait_for("t", 0, 2, 0)  # it is there
    assert not store.wait_for("t", 0, 3, 0)
    assert not store.wait_for("t", 0, 3, SOON)
    found: list[bool] = []
    with running(lambda: found.append(store.wait_for("t", 0, 4, SECONDS))):
        until(lambda: is_waited_for(store))
        put(store)
        assert store.max_offset("t", 0) == 4
        put(store, 9, queue_id=1)
        until(lambda: store.max_offset("t", 1) == 9)
        assert found == []
        put(store)
    assert found == [True]
    assert is_idle(store)
    assert store.max_offset("t", 0) == 5


def test_puts_of_every_kind_wake(store: MessageStore) -> None:
    messages = [Message("t", b"x", 0)] * 2
    batch = Message("t", encode_client_batch(messages), 0)

    async def put_task() -> None:
        await store.put_message_async(messages[0])

    puts: list[Callable[[], object]] = [
        lambda: store.put_message(messages[0]),
        lambda: store.put_messages(messages),
        lambda: store.put_client_batch(batch),
        lambda: store.put_message_future(messages[0]).result(SECONDS),
        lambda: asyncio.run(put_task()),
    ]
    for each in puts:
        at, found = store.max_offset("t", 0), list[bool]()
        with running(lambda: found.append(store.wait_for("t", 0, at, SECONDS))):  # noqa: B023
            until(lambda: is_waited_for(store))
            each()
            until(lambda: bool(found))  # noqa: B023
        assert found == [True]


def test_a_queue_that_is_not_there_yet_is_waited_for(store: MessageStore) -> None:
    found: list[bool] = []
    with running(lambda: found.append(store.wait_for("new", 7, 0, SECONDS))):
        until(lambda: is_waited_for(store))
        put(store, queue_id=7, topic="new")
    assert found == [True]


def test_the_first_of_several_queues_ends_a_wait(store: MessageStore) -> None:
    queues = {QueueKey("t", queue_id): 0 for queue_id in range(5)}
    found: list[bool] = []
    with running(lambda: found.append(store.wait_for_any(queues, SECONDS))):
        until(lambda: is_waited_for(store, 5))
        put(store, queue_id=3)
    assert found == [True]
    assert is_idle(store)


def test_nothing_is_missed_however_a_put_and_a_wait_meet(store: MessageStore) -> None:
    """A writer at full speed, and a reader that waits whenever it has read all there is."""
    count, seen = 3000, 0
    with running(lambda: put(store, count)):
        while seen < count:
            assert store.wait_for("t", 0, seen, SECONDS)
            seen = store.max_offset("t", 0)
    assert seen == count


def test_a_batch_that_a_reader_dispatches_wakes(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a put was interrupted before it could wake the thread."""
    found: list[bool] = []
    with running(lambda: found.append(store.wait_for("t", 0, 0, SECONDS))):
        until(lambda: is_waited_for(store) and components_of(store).dispatcher.full_at == 1)
        monkeypatch.setattr(components_of(store).dispatcher.arrivals, "wake", lambda: None)
        put(store)
        assert store.max_offset("t", 0) == 1
    assert found == [True]


def test_the_puts_of_many_threads_wake_each_time(store: MessageStore) -> None:
    """One message at a time: a wake-up that is lost would leave all of them waiting."""
    turns, rounds = 4, 150

    def play(number: int) -> None:
        for turn in range(rounds):
            assert store.wait_for("t", number, turn, SECONDS)
            put(store, queue_id=(number + 1) % turns)

    threads = [threading.Thread(target=play, args=(number,)) for number in range(turns)]
    with running_threads(threads, SECONDS):
        put(store)
    assert [store.max_offset("t", queue_id) for queue_id in range(turns)] == [
        rounds + 1, rounds, rounds, rounds,
    ]  # fmt: skip


# ---- nothing listens


def test_where_nothing_listens_there_is_no_thread_and_no_other_limit(plain: MessageStore) -> None:
    put(plain, LIMIT - 1)
    assert plain.wait_for("t", 0, 3)
    assert THREAD not in own_threads()
    assert plain._dispatcher.full_at == LIMIT


def test_behind_the_last_wait_batches_are_as_before(plain: MessageStore) -> None:
    assert not plain.wait_for("t", 0, 0, SOON)
    assert own_threads().count(THREAD) == 1
    put(plain)
    assert plain.max_offset("t", 0) == 1
    assert plain._dispatcher.full_at == LIMIT
    put(plain, LIMIT - 1)
    assert len(plain._dispatcher.pending.units) == LIMIT - 1


# ---- the end


@pytest.mark.parametrize("way", ["thread", "task"])
def test_a_close_wakes_all_with_the_error(tmp_path: Path, way: str) -> None:
    store = opened(tmp_path, "file")
    met: list[StoreError] = []

    def wait(offset: int) -> None:
        try:
            if way == "thread":
                store.wait_for("t", 0, offset)
            else:
                run(store.wait_for_async("t", 0, offset))
        except StoreClosedError as exc:
            met.append(exc)

    with running(lambda: wait(1)), running(lambda: wait(2)):
        until(lambda: is_waited_for(store, 2))
        put(store)
        store.close()
    assert len({id(each) for each in met}) == 2
    assert THREAD not in own_threads()
    with pytest.raises(StoreClosedError):
        store.wait_for("t", 0, 0)
    with pytest.raises(StoreClosedError):
        store.add_arrival_listener(print)


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_a_store_that_fails_wakes_all_with_the_error(tmp_path: Path, when: str) -> None:
    store = opened(tmp_path, "file")
    put(store, 2)
    cause = StoreIOError("the disk refused")
    if when == "before":
        assert store.max_offset("t", 0) == 2
        components_of(store).state.fail(cause)
        assert store.wait_for("t", 0, 1)  # the present units can be read
        with pytest.raises(StoreFailedError, match="the disk refused"):
            store.wait_for("t", 0, 2)
    else:
        met: list[BaseException] = []

        def wait() -> None:
            try:
                store.wait_for("t", 0, 2)
            except StoreFailedError as exc:
                met.append(exc)

        with running(wait):
            until(lambda: is_waited_for(store))
            components_of(store).state.fail(cause)
        assert met[0].__cause__ is cause
    with suppress(StoreError):
        store.close()


def test_a_dispatch_that_fails_wakes_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, "file")
    cause = StoreIOError("cannot write units: Input/output error")

    def refuse(*_: object) -> None:
        raise cause

    monkeypatch.setattr(components_of(store).dispatcher, "store", refuse)
    met: list[BaseException] = []

    def wait() -> None:
        try:
            store.wait_for("t", 0, 0)
        except StoreFailedError as exc:
            met.append(exc)

    with running(wait):
        until(lambda: is_waited_for(store))
        put(store)
    assert met[0].__cause__ is cause
    with suppress(StoreError):
        store.close()


def test_a_queue_that_cannot_be_read_wakes_those_who_wait_for_it(
    plain: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    def wait() -> None:
        try:
            plain.wait_for("t", 0, 5)
        except StoreIOError as exc:
            found.append(exc)

    cause = StoreIOError("cannot read the queue")
    with running(wait):
        until(lambda: is_waited_for(plain))

        def refuse(*_: object) -> None:
            raise cause

        monkeypatch.setattr(plain._dispatcher.arrivals, "_queues", _Queues(refuse))
        put(plain)
    assert found == [cause]


class _Queues:
    def __init__(self, queue: Callable[..., object]) -> None:
        self.queue = queue


def test_nothing_arrives_where_nothing_is_written(tmp_path: Path) -> None:
    with opened(tmp_path, "file") as store:
        put(store)
    with MessageStore.open(tmp_path, read_only=True) as store:
        assert store.wait_for("t", 0, 0)
        with pytest.raises(ReadOnlyStoreError):
            store.wait_for("t", 0, 1)
        with pytest.raises(ReadOnlyStoreError):
            store.add_arrival_listener(print)


def test_waits_go_on_when_a_full_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    with opened(tmp_path, "file") as store:
        put(store)
        assert store.max_offset("t", 0) == 1
        faults.fail("write", ENOSPC, "/consumequeue/")
        found: list[bool] = []
        with running(lambda: found.append(store.wait_for("t", 0, 1, SECONDS))):
            until(lambda: is_waited_for(store))
            put(store)
            until(lambda: store.metrics.snapshot().dispatch_stalled)
            assert found == []
            faults.heal()
            put(store)
        assert found == [True]


def test_an_interrupted_wait_leaves_nothing(plain: MessageStore) -> None:
    put(plain)

    def wait() -> None:
        plain.wait_for("t", 0, 1, 0)

    for number in range(1, run_interrupted(wait) + 1):
        with suppress(Interrupted):
            run_interrupted(wait, number)
        assert is_idle(plain)
        assert plain._state.failure is None
    found: list[bool] = []
    with running(lambda: found.append(plain.wait_for("t", 0, 1, SECONDS))):
        until(lambda: is_waited_for(plain))
        put(plain)
    assert found == [True]


def test_an_interrupted_put_is_found_by_the_next(plain: MessageStore) -> None:
    """Wherever it is cut short, it holds up who waits no longer than until anything else comes."""
    done = 0

    def put_at(number: int) -> int:
        nonlocal done
        found: list[bool] = []
        at, places = plain.max_offset("t", 0), 0
        with running(lambda: found.append(plain.wait_for("t", 0, at, SECONDS))):
            until(lambda: is_waited_for(plain) or bool(found))
            with suppress(Interrupted):
                places = run_interrupted(lambda: put(plain), number)
            components_of(plain).flush._flush_much()  # as it does twice a second
            put(plain)
            until(lambda: bool(found))
        assert found == [True]
        done += 1
        return places

    for number in range(1, put_at(0) + 1):
        put_at(number)
    assert done > 3
    assert plain._state.failure is None


def test_no_thread_to_be_had_is_said(plain: MessageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr("cqstore.store.concurrency.thread.StoreThread.start", refuse)
        with pytest.raises(StoreIOError, match="can't start new thread"):
            plain.wait_for("t", 0, 0)
        with pytest.raises(StoreIOError, match="can't start new thread"):
            plain.add_arrival_listener(print)
    assert is_idle(plain)
    assert not plain.wait_for("t", 0, 0, 0)


# ---- tasks


async def test_tasks_wait_and_time_out(store: MessageStore) -> None:
    assert not await store.wait_for_async("t", 0, 0, 0)
    assert not await store.wait_for_async("t", 0, 0, SOON)
    wait = asyncio.create_task(store.wait_for_async("t", 0, 1))
    await becomes(lambda: is_waited_for(store))
    put(store)
    await asyncio.sleep(0)
    assert not wait.done()
    await store.put_message_async(Message("t", b"x", 0))
    assert await wait
    assert is_idle(store)


async def test_a_cancelled_task_leaves_nothing(store: MessageStore) -> None:
    wait = asyncio.create_task(store.wait_for_async("t", 0, 0))
    await becomes(lambda: is_waited_for(store))
    wait.cancel()
    with pytest.raises(asyncio.CancelledError):
        await wait
    assert is_idle(store)


def test_a_loop_that_is_gone_harms_no_other(plain: MessageStore) -> None:
    async def leave() -> Any:
        context = plain.loop_wait({QueueKey("t", 0): 0})
        context.__enter__()
        return context

    context = asyncio.run(leave())
    put(plain)
    until(lambda: is_waited_for(plain, 0))
    assert plain.wait_for("t", 0, 0)
    context.__exit__(None, None, None)


def many_waiters(store: MessageStore, count: int) -> None:
    """Tasks of one loop, over a hundred queues: woken by their own queue, and by no other."""
    queues = 100

    async def story() -> None:
        tasks = [
            asyncio.create_task(store.wait_for_async("t", number % queues, number // queues))
            for number in range(count)
        ]
        await becomes(lambda: is_waited_for(store, count))
        assert len(own_threads()) < 10
        for queue_id in range(0, queues, 2):
            put(store, queue_id=queue_id)
        await becomes(lambda: sum(task.done() for task in tasks) == queues // 2)
        done = {number for number, task in enumerate(tasks) if task.done()}
        assert done == set(range(0, queues, 2))
        for queue_id in range(queues):
            await asyncio.sleep(0)
            store.put_messages([Message("t", b"x", queue_id)] * (count // queues))
        assert all(await asyncio.gather(*tasks))

    run(story())
    assert is_idle(store)


def test_hundreds_of_tasks_wait(store: MessageStore) -> None:
    many_waiters(store, 300)


@pytest.mark.long
@pytest.mark.parametrize("store", ["file", "rocksdb"], indirect=True)
def test_ten_thousand_tasks_wait(store: MessageStore) -> None:
    many_waiters(store, 10_000)


# ---- listeners


class Received:
    """A listener that keeps what it is given, and compares it with what a reader sees."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.units: list[Arrival] = []
        self.dropped = 0
        self.threads: set[str] = set()
        self.faults: list[str] = []

    def __call__(self, batch: ArrivalBatch) -> None:
        self.threads.add(threading.current_thread().name)
        self.dropped += batch.dropped
        found = list(batch)
        assert len(found) == len(batch)
        assert {(each.topic, each.queue_id) for each in found} == {*batch.queues}
        for each in found:
            queue = components_of(self.store).queues.queue(each.topic, each.queue_id)
            if queue.max_offset() <= each.queue_offset:  # with no dispatch on the way
                self.faults.append(f"not visible: {each}")
        self.units += found


def test_a_listener_hears_of_every_unit_in_the_order_of_the_log(store: MessageStore) -> None:
    put(store)
    assert store.max_offset("t", 0) == 1
    received = Received(store)
    with store.add_arrival_listener(received) as subscription:
        stored = [
            store.put_message(Message("t", b"x", number % 3, {"TAGS": f"tag{number}"}))
            for number in range(200)
        ]
        until(lambda: len(received.units) == 200)
    assert received.threads == {LISTENER}
    assert (received.faults, received.dropped, subscription.failures) == ([], 0, 0)
    for number, (unit, result) in enumerate(zip(received.units, stored, strict=True)):
        assert result.appended is not None
        message = store.get_message("t", number % 3, unit.queue_offset, 1).messages()[0]
        assert message.phy_offset == result.phy_offset
        assert unit[:3] == ("t", number % 3, result.queue_offset)
        assert unit.store_timestamp == message.store_timestamp
        (cq_unit,) = [
            next(
                iter(components_of(store).queues.queue("t", number % 3).iterate(unit.queue_offset))
            )
        ]
        assert unit.tags_code == cq_unit.tags_code
    put(store, 3)
    assert store.max_offset("t", 0)
    assert len(received.units) == 200
    assert is_idle(store)


def test_light_queues_arrive_too(plain: MessageStore) -> None:
    received = Received(plain)
    found: list[bool] = []
    light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    with (
        plain.add_arrival_listener(received),
        running(lambda: found.append(plain.wait_for("%LMQ%b", 0, 0, SECONDS))),
    ):
        until(lambda: is_waited_for(plain))
        assert plain.put_message(Message("t", b"x", 2, light)).ok
    assert found == [True]
    assert [unit[:3] for unit in received.units] == [
        ("t", 2, 0),
        ("%LMQ%a", 0, 0),
        ("%LMQ%b", 0, 0),
    ]


def test_a_half_message_does_not_arrive(plain: MessageStore) -> None:
    received = Received(plain)
    with plain.add_arrival_listener(received):
        assert plain.put_message(Message("t", b"x", 0, sys_flag=0x4)).ok
        put(plain)
        until(lambda: bool(received.units))
    assert len(received.units) == 1


def test_a_listener_that_fails_is_counted_and_harms_nothing(plain: MessageStore) -> None:
    received, calls = Received(plain), list[int]()

    def fail(batch: ArrivalBatch) -> None:
        calls.append(len(batch))
        raise KeyboardInterrupt("of a listener")

    with (
        logged() as lines,
        plain.add_arrival_listener(fail) as failing,
        plain.add_arrival_listener(received),
    ):
        for number in range(5):
            put(plain)
            until(lambda: len(received.units) == number + 1)  # noqa: B023
            until(lambda: sum(calls) == number + 1)  # noqa: B023
    text = lines.getvalue()
    assert failing.failures == len(calls)
    assert plain.metrics.snapshot().listener_failures == len(calls)
    assert "has failed 1 times" in text
    assert "KeyboardInterrupt: of a listener" in text
    assert text.count("has failed") <= 3  # 1, 2, 4
    put(plain)
    assert plain.max_offset("t", 0) == 6


def test_a_listener_that_is_slow_is_told_what_it_missed(
    plain: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrivals, "MAX_WAITING_UNITS", 10)
    entered, go_on = threading.Event(), threading.Event()
    counts: list[tuple[int, int]] = []

    def slow(batch: ArrivalBatch) -> None:
        counts.append((len(batch), batch.dropped))
        entered.set()
        assert go_on.wait(SECONDS)

    received = Received(plain)
    with plain.add_arrival_listener(slow) as subscription, plain.add_arrival_listener(received):
        put(plain)
        assert entered.wait(SECONDS)
        for number in range(1, 31):
            put(plain)
            until(lambda: len(received.units) == number + 1)  # noqa: B023
        assert counts == [(1, 0)]
        assert plain.wait_for("t", 0, 30, SECONDS)  # it holds up no other
        assert subscription.dropped == 30 - 9
        go_on.set()
        until(lambda: sum(map(sum, counts)) == 31)
    assert sum(dropped for _, dropped in counts) == 30 - 9
    assert plain.metrics.snapshot().arrivals_dropped == 30 - 9
    assert received.dropped == 0


def test_a_close_gives_listeners_what_was_put_and_ends_their_threads(tmp_path: Path) -> None:
    store = opened(tmp_path, "file")
    received = Received(store)
    store.add_arrival_listener(received)
    put(store, 500)
    store.close()
    assert len(received.units) == 500
    assert {THREAD, LISTENER}.isdisjoint(own_threads())


def test_a_listener_that_never_returns_does_not_hold_up_a_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(arrivals, "EXIT_SECONDS", SOON)
    go_on, entered = threading.Event(), threading.Event()

    def hang(_: ArrivalBatch) -> None:
        entered.set()
        go_on.wait(SECONDS)

    store = opened(tmp_path, "file")
    store.add_arrival_listener(hang)
    put(store)
    assert entered.wait(SECONDS)
    store.close()
    assert "does not return" in caplog.text
    go_on.set()
    until(lambda: LISTENER not in own_threads())


def test_a_listener_may_read_and_wait_and_cannot_close(plain: MessageStore) -> None:
    met: list[object] = []

    def work(batch: ArrivalBatch) -> None:
        if met:
            return
        met.append(plain.get_message("t", 0, 0).messages()[0].body)
        met.append(plain.wait_for("t", 0, 1, SECONDS))
        calls: list[Callable[[], object]] = [plain.close, subscription.close]
        for call in calls:
            try:
                call()
            except NestedCallError as exc:
                met.append(type(exc))

    subscription = plain.add_arrival_listener(work)
    put(plain)
    until(lambda: len(met) >= 1)
    put(plain)
    until(lambda: len(met) == 4)
    subscription.close()
    subscription.close()
    assert met == [b"x", True, NestedCallError, NestedCallError]


def test_replayed_bytes_of_another_log_arrive(tmp_path: Path, plain: MessageStore) -> None:
    with opened(tmp_path / "other", "file") as other:
        put(other, 5)
        (file,) = components_of(other).log.files
        data = bytes(file.read(0, other.max_phy_offset()))
    found: list[bool] = []
    with running(lambda: found.append(plain.wait_for("t", 0, 4, SECONDS))):
        until(lambda: is_waited_for(plain))
        plain.append_to_commit_log(0, data)
    assert found == [True]


def test_many_batches_before_the_thread_comes_are_not_lost(
    plain: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.store.service.dispatching.arrival_service._MAX_NOTED", 2)
    service = plain._dispatcher.arrivals
    real, held = service._serve, threading.Event()

    def serve() -> None:
        assert held.wait(SECONDS)
        real()

    monkeypatch.setattr(service, "_serve", serve)
    found: list[int] = []
    waits = [
        running(lambda at=at: found.append(at) if plain.wait_for("t", at, 0, SECONDS) else None)
        for at in range(8)
    ]
    with ExitStack() as stack:
        for each in waits:
            stack.enter_context(each)
        until(lambda: is_waited_for(plain, 8))
        for queue_id in range(8):
            put(plain, queue_id=queue_id)
            assert plain.max_offset("t", queue_id) == 1
        assert service._is_late
        held.set()
    assert sorted(found) == [*range(8)]


def test_a_child_that_was_forked_is_refused(plain: MessageStore) -> None:
    plain._state.leave_to_parent()
    calls: list[Callable[[], object]] = [
        lambda: plain.wait_for("t", 0, 0, 0), lambda: plain.add_arrival_listener(print),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(StoreStateError, match="before the fork"):
            call()
    plain._state.forked = False
