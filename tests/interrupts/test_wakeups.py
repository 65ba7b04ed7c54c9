"""A thread of the store is woken by callers that are interrupted: close comes to its end."""

import threading
from collections.abc import Callable
from concurrent.futures import InvalidStateError, _base, as_completed, wait
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.ab.trace.trace_control import record_trace
from cqstore.cq_file.file_sync import for_each
from cqstore.replication.feed.followers import Followers
from cqstore.store.concurrency.future import StoreFuture
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.concurrency.wakeup import Latch, Wakeup
from cqstore.store.errors import StoreError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.writing.log_prefault import LogPrefault
from cqstore.store.service.writing.putter import Putter
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.waiting import running_threads

SECONDS = 30
SMALL = StoreConfig(mapped_file_size_commit_log=65536, max_hash_slot_num=20, max_index_num=400)


@pytest.fixture(autouse=True)
def _library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt in Python's own locks as well."""
    library = threading.__file__, _base.__file__
    monkeypatch.setattr(interrupts, "_OURS", (*interrupts._OURS, *library))


@pytest.mark.parametrize("step", [Wakeup.set, Wakeup.wait])
def test_a_wakeup_works_after_an_interrupt_anywhere(step: Callable[[Wakeup], object]) -> None:
    def called() -> Wakeup:
        wakeup = Wakeup()
        wakeup.set()
        return wakeup

    places = run_interrupted(lambda: step(called()))
    for number in range(1, places + 1):
        wakeup = called()
        with suppress(Interrupted):
            run_interrupted(lambda wakeup=wakeup: step(wakeup), number)  # type: ignore[misc]
        with in_time(SECONDS):
            wakeup.set()
            wakeup.set()
            assert wakeup.wait()
            assert not wakeup.wait(0)


@pytest.mark.parametrize("step", [Latch.set, Latch.wait, Latch.is_set])
def test_a_latch_works_after_an_interrupt_anywhere(step: Callable[[Latch], object]) -> None:
    """Set before or behind the interrupt, it lets threads go on that wait."""

    def latch_of(*, is_set: bool) -> Latch:
        latch = Latch()
        if is_set:
            latch.set()
        return latch

    before = step is not Latch.set
    places = run_interrupted(lambda: step(latch_of(is_set=before)))
    assert places
    for number in range(1, places + 1):
        latch = latch_of(is_set=before)
        done: list[bool] = []
        threads = [
            threading.Thread(target=lambda latch=latch, done=done: done.append(latch.wait(SECONDS)))
            for _ in range(3)
        ]
        with running_threads(threads, SECONDS):
            with suppress(Interrupted):
                run_interrupted(lambda latch=latch: step(latch), number)  # type: ignore[misc]
            latch.set()
        assert done == [True] * 3
        assert latch.is_set()
        with in_time(SECONDS):
            assert latch.wait()


def test_a_latch_that_is_not_set_ends_a_wait_in_time() -> None:
    latch = Latch()
    assert not latch.wait(0)
    assert not latch.wait(0.001)
    assert not latch.is_set()


def test_a_thread_whose_start_was_interrupted_anywhere_is_waited_for() -> None:
    def begin(number: int) -> tuple[StoreThread, list[int], int]:
        ran: list[int] = []
        thread, places = StoreThread("cqstore-test", lambda: ran.append(number)), 0
        with suppress(Interrupted):
            places = run_interrupted(thread.start, number)
        return thread, ran, places

    _, _, places = begin(0)
    assert places > 3
    for number in range(1, places + 1):
        thread, ran, _ = begin(number)
        began = thread.ident is not None
        with in_time(SECONDS):
            thread.join()
        assert not thread.is_alive()
        assert ran or not began, number


@pytest.mark.parametrize("count", [1, 9, pytest.param(40, marks=pytest.mark.long)])
def test_work_on_many_items_ends_after_an_interrupt_anywhere(count: int) -> None:
    def work(number: int) -> int:
        done: list[int] = []
        places = 0
        with in_time(SECONDS), suppress(Interrupted):
            places = run_interrupted(lambda: for_each(done.append, range(count)), number)
        assert sorted(set(done)) == sorted(done)
        assert len(done) == count or number
        return places

    places = work(0)
    for number in range(1, places + 1):
        work(number)


def test_work_on_many_items_raises_what_one_of_them_raised() -> None:
    def work(item: int) -> None:
        if item == 30:
            raise StoreError("30")

    with pytest.raises(StoreError, match="30"):
        for_each(work, range(100))


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # in a generator that is being closed
)
def test_a_store_closes_after_a_replicated_put_was_interrupted(tmp_path: Path) -> None:
    """Also where it asks for replicas, and where one acknowledges."""
    config = SMALL.model_copy(
        update={"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2, "slave_timeout": 100}
    )

    def case(number: int) -> int:
        root, followers = tmp_path / str(number), Followers()
        link = followers.join("a", 1)
        followers.begin(link, 0, 0)
        store = MessageStore.open(root, config, housekeeping=False, replicas=followers)

        def step() -> None:
            store.put_message_future(Message("t", b"x"))
            followers.acknowledge(link, store.max_phy_offset())
            store.put_message(Message("t", b"x"))

        places = 0
        with suppress(Interrupted):
            places = run_interrupted(step, number)
        with in_time(SECONDS):
            if components_of(store).state.failure is None:
                followers.acknowledge(link, 1 << 40)
                assert store.put_message_future(Message("t", b"later")).result(SECONDS).ok
            with suppress(StoreError):
                store.close()
            store.close()
        return places

    places = case(0)
    assert places > 5
    for number in range(1, places + 1, max(1, places // 40)):
        case(number)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # in a generator that is being closed
)
def test_a_close_goes_on_after_one_was_interrupted_where_it_ends_a_thread(tmp_path: Path) -> None:
    """Threads of flush, expiry, the mirror and a trace."""
    config = SMALL.model_copy(update={"rocksdb_cq_double_write_enable": True, "ab_share": 1.0})

    def case(number: int) -> int:
        root, before = tmp_path / str(number), {*threading.enumerate()}
        store = MessageStore.open(root, config)
        record_trace(store, tmp_path / f"{number}.trace")
        assert store.put_message(Message("t", b"x")).ok
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(store.close, number)
        with in_time(SECONDS):
            with suppress(StoreError):
                store.close()
            store.close()
        assert {*threading.enumerate()} <= before, number
        with MessageStore.open(root, housekeeping=False) as again:
            assert again.max_offset("t", 0) == 1
        return places

    places = case(0)
    assert places > 30
    for number in range(1, places + 1, max(1, places // 25)):
        case(number)


WAITS: dict[str, Callable[[StoreFuture[int]], object]] = {
    "result": lambda future: future.result(0),
    "exception": lambda future: future.exception(0),
    "set": lambda future: future.set_result(1),
    "fail": lambda future: future.set_exception(StoreError("1")),
    "done": StoreFuture.done,
    "callback": lambda future: future.add_done_callback(str),
    "wait": lambda future: wait([future], 0),
    "as_completed": lambda future: [*as_completed([future], 0)],
}


@pytest.mark.parametrize("step", WAITS)
def test_a_future_completes_after_an_interrupt_anywhere(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread completes it and goes on, and all who wait then are woken."""
    monkeypatch.setattr("cqstore.store.concurrency.future._SECONDS", 0.05)

    def interrupted(number: int) -> None:
        future: StoreFuture[int] = StoreFuture()
        # A library's ``with`` whose lock is taken again in vain says so instead.
        with suppress(Interrupted, TimeoutError, RuntimeError):
            run_interrupted(lambda: WAITS[step](future), number)

        def complete() -> None:
            with suppress(InvalidStateError):
                future.set_result(1)

        thread = threading.Thread(target=complete, daemon=True)
        thread.start()
        thread.join(SECONDS)  # whether or not it has completed the future
        assert not thread.is_alive(), number
        with in_time(SECONDS):
            done, _ = wait([future], SECONDS)
            assert done == {future}
            if step == "fail" and future.exception(SECONDS) is not None:
                assert str(future.exception()) == "1"
            else:
                assert future.result(SECONDS) == 1

    def uninterrupted() -> None:
        with suppress(TimeoutError):
            WAITS[step](StoreFuture())

    places = run_interrupted(uninterrupted)
    assert places > 3
    for number in range(1, places + 1):
        interrupted(number)


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"  # in a generator that is being closed
)
@pytest.mark.parametrize("flush", [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH])
def test_a_store_closes_after_a_put_was_interrupted_where_it_wakes_a_thread(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    def put(store: MessageStore) -> None:
        putter = store._putter
        assert isinstance(putter, Putter)
        pages = getattr(putter._look_ahead, "__self__", None)
        if isinstance(pages, LogPrefault):  # the thread is due
            pages._due = putter._timed_from = 0
        store.put_message_future(Message("t", b"x"))
        store.put_message(Message("t", b"x", 0, {"TAGS": "a"}))

    def case(number: int) -> int:
        root = tmp_path / str(number)
        config = SMALL.model_copy(update={"flush_disk_type": flush})
        store = MessageStore.open(root, config, housekeeping=False)
        assert store.put_message(Message("t", b"first")).ok
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(lambda: put(store), number)
        with in_time(SECONDS):
            with suppress(StoreError):
                store.close()
            store.close()
        with MessageStore.open(root) as again:
            assert again.max_offset("t", 0) >= 1
        return places

    places = case(0)
    assert places > 5
    for number in range(1, places + 1, max(1, places // 40)):
        case(number)
