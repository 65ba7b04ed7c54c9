"""A thread of the store is woken by callers that are interrupted: close comes to its end."""

import gc
import threading
from collections.abc import Callable
from concurrent.futures import InvalidStateError, _base
from contextlib import suppress
from pathlib import Path

import pytest

from store.config import FlushDiskType, StoreConfig
from store.errors import StoreError
from store.future import StoreFuture
from store.record.message import Message
from store.service.message_store import MessageStore
from store.service.writing.pages_ahead import PagesAhead
from store.service.writing.putter import Putter
from store.wakeup import Wakeup
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time

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


WAITS: dict[str, Callable[[StoreFuture[int]], object]] = {
    "result": lambda future: future.result(0),
    "exception": lambda future: future.exception(0),
    "set": lambda future: future.set_result(1),
    "fail": lambda future: future.set_exception(StoreError("1")),
    "done": StoreFuture.done,
    "callback": lambda future: future.add_done_callback(str),
}


@pytest.mark.parametrize("step", WAITS)
def test_a_future_completes_after_an_interrupt_anywhere(step: str) -> None:
    """Another thread completes it, and whoever waits then is told."""

    def interrupted(number: int) -> None:
        future: StoreFuture[int] = StoreFuture()
        with suppress(Interrupted, TimeoutError):
            run_interrupted(lambda: WAITS[step](future), number)

        def complete() -> None:
            with suppress(InvalidStateError):
                future.set_result(1)

        thread = threading.Thread(target=complete)
        thread.start()
        with in_time(SECONDS):
            if step == "fail" and future.exception(SECONDS) is not None:
                assert str(future.exception()) == "1"
            else:
                assert future.result(SECONDS) == 1
        thread.join(SECONDS)
        assert not thread.is_alive()

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
        if isinstance(pages, PagesAhead):  # the thread is due
            pages._due = putter._timed_from = 0
        store.put_message_async(Message("t", b"x"))
        store.put_message(Message("t", b"x", 0, {"TAGS": "a"}))

    def case(number: int) -> int:
        root = tmp_path / str(number)
        config = SMALL.model_copy(update={"flush_disk_type": flush})
        store = MessageStore.open(root, config, housekeeping=False)
        assert store.put_message(Message("t", b"first")).ok
        places = 0
        gc.collect()  # no store of an earlier case is let go by the collector where this one is cut
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
