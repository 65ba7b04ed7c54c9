"""``await store.put(message)``: by many tasks of a loop, with a disk that waits until it may."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from cqstore.store.errors import StoreClosedError, StoreFailedError, StoreIOError
from cqstore.store.log.commit_log import Appended
from cqstore.store.record.message import Message, MessageProperty
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.writing import _waits, ack_waiter, flush, loop_puts
from tests.kit.gated_disk import GatedDisk, gated
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.waiting import becomes, run, run_threads, until
from tests.store.service.test_flush import ASYNC, SYNC

if TYPE_CHECKING:
    from types import FrameType

OK = PutMessageStatus.PUT_OK
SECONDS = 60


@pytest.fixture(params=["asyncio", "another kind"])
def any_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop of asyncio's own, or one that is taken for another."""
    if request.param != "asyncio":
        monkeypatch.setattr(loop_puts, "_LOOPS", ())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> GatedDisk:
    return gated(monkeypatch)


@pytest.fixture(params=["file", "rocksdb"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, disk: GatedDisk
) -> Iterator[MessageStore]:
    opened = MessageStore.open(tmp_path / "store", SYNC, backend=request.param)
    disk.syncs = 0
    yield opened
    disk.open.set()
    with suppress(StoreFailedError, StoreIOError):
        opened.close()


def message(number: int = 0, properties: dict[str, str] | None = None) -> Message:
    return Message("t", b"%d" % number, number % 8, properties or {})


def end_of(result: PutMessageResult) -> int:
    assert result.appended is not None
    return result.phy_offset + result.appended.size


def puts(store: MessageStore, numbers: range) -> list["asyncio.Task[PutMessageResult]"]:
    return [asyncio.create_task(store.put_message_async(message(number))) for number in numbers]


async def held_up(
    store: MessageStore, disk: GatedDisk, count: int, appended: int | None = None
) -> list["asyncio.Task[PutMessageResult]"]:
    """Return the tasks of so many puts, all of which, or ``appended``, wait for the disk."""
    disk.open.clear()
    tasks = puts(store, range(count))
    wanted = count if appended is None else appended
    await becomes(lambda: components_of(store).log.appended_records == wanted)
    return tasks


@pytest.mark.usefixtures("any_loop")
def test_each_is_durable_when_its_task_goes_on_and_a_task_keeps_its_order(
    store: MessageStore,
) -> None:
    async def produce(queue_id: int) -> list[int]:
        found = []
        for number in range(5):
            result = await store.put_message_async(Message("t", b"%d" % number, queue_id))
            assert result.status is OK
            assert store.flushed_phy_offset() >= end_of(result)
            found.append(result.queue_offset)
        return found

    async def story() -> None:
        assert await asyncio.gather(*map(produce, range(40))) == [[*range(5)]] * 40

    run(story())
    for queue_id in range(40):
        found = store.get_message("t", queue_id, 0).messages()
        assert [each.body for each in found] == [b"%d" % number for number in range(5)]


def test_those_of_one_sync_cost_one_call_of_the_loop(
    store: MessageStore, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    real = loop_puts._InLoop.complete_soon

    def report(self: Any, put: Any) -> None:
        real(self, put)
        reported.append(put)

    monkeypatch.setattr(loop_puts._InLoop, "complete_soon", report)
    calls: list[object] = []
    complete = loop_puts._InLoop._complete_all

    def counted(self: Any) -> None:
        calls.append(self)
        complete(self)

    monkeypatch.setattr(loop_puts._InLoop, "_complete_all", counted)

    async def story() -> list[PutMessageResult]:
        tasks = await held_up(store, disk, 100)
        assert not any(task.done() for task in tasks)
        disk.open.set()
        until(lambda: len(reported) == 100)  # the loop has no turn meanwhile
        return await asyncio.gather(*tasks)

    assert {result.status for result in run(story())} == {OK}
    assert len(calls) == 2  # for all hundred; the second if a signal's handler raised in the first
    assert disk.syncs <= 2  # the one that waited may have begun before the others came


def test_what_another_thread_tells_goes_by_the_loop_though_no_task_awaits_it_yet() -> None:
    """Else the task would create its future, and await it for ever."""
    reported: list[object] = []
    of: Any = SimpleNamespace(thread=threading.get_ident(), complete_soon=reported.append)
    result = PutMessageResult(OK)
    put = _waits.AwaitedPut(of)
    other = threading.Thread(target=put.set_result, args=(result,))
    other.start()
    other.join(SECONDS)
    assert (reported, put.is_notified) == ([put], False)
    own = _waits.AwaitedPut(of)
    own.set_result(result)
    assert (reported, own.is_notified, own.answer()) == ([put], True, result)


@pytest.mark.parametrize(
    ("disk_in_time", "followers_in_time", "expected"),
    [
        (True, None, OK), (False, None, PutMessageStatus.FLUSH_DISK_TIMEOUT),
        (True, True, OK), (True, False, PutMessageStatus.FLUSH_SLAVE_TIMEOUT),
        (False, True, PutMessageStatus.FLUSH_DISK_TIMEOUT),
    ],
)  # fmt: skip
def test_a_put_waits_for_the_disk_and_then_for_followers_once(
    *, disk_in_time: bool, followers_in_time: bool | None, expected: PutMessageStatus
) -> None:
    """RocketMQ combines the two waits, and reports the disk's first (``handleDiskFlushAndHA``)."""
    waits: list[tuple[int, object]] = []
    followers: Any = SimpleNamespace(when_replicated=lambda *wait: waits.append(wait))
    promised, refused = Future[PutMessageResult](), list[PutMessageStatus]()
    put = PutMessageResult(OK, Appended(1000, 100, 0), 7)
    answer = _waits.LaterAnswer(
        put, promised, followers if followers_in_time is not None else None, refused.append
    )
    answer.set_result(disk_in_time)
    if disk_in_time and followers_in_time is not None:
        assert (waits, promised.done()) == ([(1100, answer)], False)
        answer.set_result(followers_in_time)
    assert promised.done()
    assert promised.result() == put._replace(status=expected)
    assert refused == [expected][: expected is not OK]
    assert len(waits) == (disk_in_time and followers_in_time is not None)


def test_what_fails_where_a_put_goes_on_is_its_answer() -> None:
    """The thread that notifies it has other puts to notify."""

    def fail(_: object) -> None:
        raise Interrupted

    promised = Future[PutMessageResult]()
    answer = _waits.LaterAnswer(PutMessageResult(OK, Appended(0, 1, 0)), promised, None, fail)
    answer.set_result(False)
    assert isinstance(promised.exception(SECONDS), Interrupted)
    answer.set_exception(OSError(5, "Input/output error"))  # it is answered: only logged


async def test_the_disk_is_asked_when_all_tasks_have_put_that_can(
    store: MessageStore, disk: GatedDisk
) -> None:
    for syncs in (1, 2):  # the second time they are asked to go on together
        results = await asyncio.gather(*puts(store, range(100)))
        assert {result.status for result in results} == {OK}
        assert disk.syncs == syncs


async def test_a_handler_that_raises_where_the_disk_is_asked_holds_nobody_up() -> None:
    requested: list[object] = []

    def ask() -> None:
        requested.append(ask)
        if len(requested) == 1:
            raise Interrupted

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    loop_puts._InLoop(asyncio.get_running_loop()).soon(ask)
    await asyncio.sleep(0)
    assert len(requested) == 2


@pytest.mark.usefixtures("any_loop")
def test_where_nothing_is_waited_for_the_loop_gets_no_turn(tmp_path: Path, disk: GatedDisk) -> None:
    with MessageStore.open(tmp_path / "store", ASYNC) as store:
        disk.syncs = 0
        assert at_once(store, message()).status is OK
        assert at_once(store, Message("", b"x")).status is PutMessageStatus.MESSAGE_ILLEGAL
        assert disk.syncs == 0


@pytest.mark.usefixtures("any_loop")
def test_who_does_not_wait_goes_on_at_once(store: MessageStore, disk: GatedDisk) -> None:
    disk.open.clear()
    assert at_once(store, message(0, {MessageProperty.WAIT: "false"})).status is OK
    assert at_once(store, Message("", b"x")).status is PutMessageStatus.MESSAGE_ILLEGAL


def at_once(store: MessageStore, given: Message) -> PutMessageResult:
    """Put in a loop whose only step this is."""

    async def story() -> PutMessageResult:
        step = store.put_message_async(given)
        with pytest.raises(StopIteration) as done:
            step.send(None)
        result: PutMessageResult = done.value.value
        return result

    return asyncio.run(story())


@pytest.mark.usefixtures("any_loop")
async def test_all_who_wait_are_told_what_kept_the_log_from_the_disk(
    store: MessageStore, disk: GatedDisk
) -> None:
    tasks = await held_up(store, disk, 20)
    disk.fails = True
    disk.open.set()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, StoreFailedError | StoreIOError)
    with pytest.raises(StoreFailedError):
        await store.put_message_async(message())


@pytest.mark.usefixtures("any_loop")
async def test_a_late_sync_is_said(tmp_path: Path, disk: GatedDisk) -> None:
    config = SYNC.model_copy(update={"sync_flush_timeout": 1})
    with MessageStore.open(tmp_path / "store", config) as store:
        until(lambda: disk.entered.acquire(blocking=False) is False)
        disk.open.clear()
        (task,) = puts(store, range(1))
        await asyncio.to_thread(disk.entered.acquire)
        began = asyncio.get_running_loop().time()
        await becomes(lambda: asyncio.get_running_loop().time() - began > 0.01)
        disk.open.set()
        assert (await task).status is PutMessageStatus.FLUSH_DISK_TIMEOUT
        assert store.metrics.snapshot().put_not_ok[PutMessageStatus.FLUSH_DISK_TIMEOUT] == 1


@pytest.mark.usefixtures("any_loop")
async def test_a_close_lets_those_who_wait_have_their_answer(
    store: MessageStore, disk: GatedDisk
) -> None:
    tasks = await held_up(store, disk, 10)
    closing = asyncio.create_task(asyncio.to_thread(store.close))
    disk.open.set()
    assert [result.status for result in await asyncio.gather(*tasks)] == [OK] * 10
    await closing
    with pytest.raises(StoreClosedError):
        await store.put_message_async(message())


# ---- cancelled, and too many


@pytest.mark.usefixtures("any_loop")
async def test_who_is_cancelled_behind_the_append_goes_and_the_message_stays(
    store: MessageStore, disk: GatedDisk
) -> None:
    tasks = await held_up(store, disk, 3)
    tasks[1].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    disk.open.set()
    assert [(await task).status for task in (tasks[0], tasks[2])] == [OK, OK]
    assert [store.max_offset("t", number) for number in range(3)] == [1, 1, 1]


def test_too_many_wait_before_they_append_and_leave_nothing_if_cancelled(
    store: MessageStore, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_puts, "MAX_IN_FLIGHT", 3)

    async def story() -> None:
        tasks = await held_up(store, disk, 8, appended=3)
        for _ in range(5):
            await asyncio.sleep(0)
        assert components_of(store).log.appended_records == 3
        tasks[3].cancel()
        tasks[4].cancel()
        disk.open.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        left_out = [number for number, got in enumerate(outcomes) if isinstance(got, BaseException)]
        assert left_out == [3, 4]

    run(story())
    assert [store.max_offset("t", number) for number in range(8)] == [1, 1, 1, 0, 0, 1, 1, 1]


async def test_the_room_of_who_is_cancelled_is_the_next_ones(
    store: MessageStore, disk: GatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cancelled when it had been let in, and before it ran."""
    monkeypatch.setattr(loop_puts, "MAX_IN_FLIGHT", 1)
    let_in = loop_puts._InLoop._admit
    disk.open.clear()
    tasks = puts(store, range(3))

    def cancelling(self: Any) -> None:
        let_in(self)
        monkeypatch.setattr(loop_puts._InLoop, "_admit", let_in)
        tasks[1].cancel()

    monkeypatch.setattr(loop_puts._InLoop, "_admit", cancelling)
    await becomes(lambda: components_of(store).log.appended_records == 1)
    disk.open.set()
    async with asyncio.timeout(SECONDS):
        await asyncio.wait(tasks)
    assert [task.cancelled() for task in tasks] == [False, True, False]


@pytest.mark.usefixtures("any_loop")
def test_a_loop_that_has_ended_holds_nobody_up(store: MessageStore, disk: GatedDisk) -> None:
    async def leave() -> None:
        tasks = await held_up(store, disk, 5)
        for task in tasks:
            task.cancel()

    run(leave())
    disk.open.set()

    async def again() -> PutMessageResult:
        return await store.put_message_async(message())

    assert run(again()).status is OK
    assert store.put_message_future(message()).result(SECONDS).status is OK


@pytest.mark.usefixtures("any_loop")
def test_loops_of_several_threads_put_side_by_side(store: MessageStore) -> None:
    found: list[list[PutMessageResult]] = []

    async def story() -> list[PutMessageResult]:
        return list(await asyncio.gather(*puts(store, range(50))))

    threads = [threading.Thread(target=lambda: found.append(run(story()))) for _ in range(3)]
    run_threads(threads, SECONDS)
    results = [result for each in found for result in each]
    assert [result.status for result in results] == [OK] * 150
    assert len({result.phy_offset for result in results}) == 150


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore:coroutine .* was never awaited"
)
def test_after_an_interrupt_where_a_put_is_handed_over_the_loop_puts_on(tmp_path: Path) -> None:
    """Or the store has failed, and says so."""
    handing = [loop_puts.__file__, ack_waiter.__file__, flush.__file__]
    seen: list[object] = []

    async def three(store: MessageStore) -> list[PutMessageStatus]:
        return [result.status for result in await asyncio.gather(*puts(store, range(3)))]

    def note(frame: "FrameType") -> None:
        seen.append(frame.f_code.co_filename)

    def case(number: int) -> None:
        with (
            in_time(SECONDS),
            suppress(StoreFailedError),
            asyncio.Runner() as runner,
            MessageStore.open(tmp_path / str(number), SYNC, housekeeping=False) as opened,
        ):
            first = runner.get_loop().create_task(opened.put_message_async(message()))
            step = partial(runner.get_loop().run_until_complete, first)
            with suppress(Interrupted):
                run_interrupted(step, number, on_place=note)
            assert runner.run(three(opened)) == [OK] * 3
            with suppress(Interrupted):
                runner.get_loop().run_until_complete(first)
            assert not opened._loops[0]._here.of.in_flight  # type: ignore[index]

    case(0)
    places = [at for at, file in enumerate(seen, 1) if file in handing]
    assert len(places) > 30
    for number in places:
        case(number)
