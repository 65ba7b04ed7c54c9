"""A log call of the main thread's is interrupted: no thread of a store waits for its handler."""

import io
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from cqstore.store.concurrency import logger as logger_module
from cqstore.store.concurrency.future import StoreFuture
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit import interrupts
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time

SECONDS = 30
NAMES = "cqstore.store", "program", "concurrent.futures"
SMALL = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=20, max_index_num=3)


class Handler(logging.StreamHandler[io.StringIO]):
    """A handler that takes its lock by a call, which an interrupt may follow.

    ``logging`` itself does so before CPython 3.13, and many programs' handlers.
    """

    def handle(self, record: logging.LogRecord) -> bool:
        self.acquire()
        try:
            self.emit(record)
        finally:
            self.release()
        return True


class Logs:
    """What a program has set up for its own log and that of the store."""

    def __init__(self) -> None:
        self.text = io.StringIO()
        self.handler = Handler(self.text)
        self.handler.setFormatter(logging.Formatter("%(name)s %(threadName)s %(message)s"))
        for name in NAMES:
            logging.getLogger(name).addHandler(self.handler)
            logging.getLogger(name).setLevel(logging.INFO)

    def remove(self) -> None:
        for name in NAMES:
            logging.getLogger(name).removeHandler(self.handler)
            logging.getLogger(name).setLevel(logging.NOTSET)
        lock = vars(logging)["_lock"]
        while lock._is_owned():  # for the tests to come
            lock.release()


def is_left_taken(lock: "threading.RLock | None") -> bool:
    """Return whether another thread would wait for it."""
    taken: list[bool] = []

    def ask() -> None:
        assert lock is not None
        taken.append(not lock.acquire(blocking=False))
        if not taken[0]:
            lock.release()

    in_thread(ask)
    return taken[0]


def in_thread(work: object) -> None:
    thread = threading.Thread(target=work, daemon=True)  # type: ignore[arg-type]
    thread.start()
    thread.join(SECONDS)
    assert not thread.is_alive()


@pytest.fixture(autouse=True)
def _library_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt in the library, and wait for no handler as long as a second."""
    monkeypatch.setattr(interrupts, "_OURS", (logging.__file__,))
    monkeypatch.setattr(logger_module, "_SECONDS", 0.05)


Cases = Callable[[bool], Iterator[Logs]]


@pytest.fixture
def interrupted_logs() -> Iterator[Cases]:
    """Yield what is left of a log call at each place of it, or of those about a handler's lock."""
    made: list[Logs] = []

    def call(number: int, on_place: Callable[[FrameType], object] = str) -> Logs:
        made.append(Logs())
        with suppress(Interrupted):
            log = logging.getLogger("program").info
            run_interrupted(lambda: log("own"), number, on_place=on_place)
        return made[-1]

    def cases(every: bool) -> Iterator[Logs]:  # noqa: FBT001
        names = list[str]()
        logs = call(0, lambda frame: names.append(frame.f_code.co_name))
        assert "own" in logs.text.getvalue()
        for number, name in enumerate(names, 1):
            logs.remove()
            if every or name in {"acquire", "handle", "release"}:
                logs = call(number)
                yield logs

    yield cases
    for logs in made:
        logs.remove()


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.long)])


@EVERY
@pytest.mark.slow
def test_a_store_goes_on_and_closes_after_a_log_call_was_interrupted(
    tmp_path: Path, interrupted_logs: Cases, *, every: bool
) -> None:
    """Where the lock of a handler is left taken, the other threads go on without the line."""
    store = MessageStore.open(tmp_path, SMALL, housekeeping=False)
    left, requested = 0, 0
    for logs in interrupted_logs(every):
        for _ in range(3):  # as many as a file of the index takes
            assert store.put_message(Message("t", b"x", 0, {"KEYS": f"k{requested}"})).ok
            requested += 1
        in_thread(store.flush)
        taken = is_left_taken(logs.handler.lock)
        left += taken
        assert ("created index file" in logs.text.getvalue()) != taken
    assert 0 < left < requested // 3
    with in_time(SECONDS):
        store.close()


@EVERY
@pytest.mark.slow
def test_a_future_completes_though_its_callback_fails_after_an_interrupted_log_call(
    interrupted_logs: Cases, *, every: bool
) -> None:
    """Also the callbacks behind the one that fails are called."""

    def fail(_: Future[int]) -> None:
        raise ValueError("not foreseen")

    for logs in interrupted_logs(every):
        future, called = StoreFuture[int](), list[int]()
        future.add_done_callback(fail)
        future.add_done_callback(lambda done, called=called: called.append(done.result()))  # type: ignore[misc]
        in_thread(lambda future=future: future.set_result(7))
        assert called == [7]
        assert ("not foreseen" in logs.text.getvalue()) != is_left_taken(logs.handler.lock)


def test_a_handler_has_the_lines_again_once_its_lock_is_free() -> None:
    logs, log = Logs(), StoreLogger("cqstore.store.some.module")
    lock = logs.handler.lock
    assert lock is not None
    try:
        with lock:
            for _ in range(2):
                in_thread(lambda: log.warning("lost"))
            log.warning("of the main thread")
        in_thread(lambda: log.warning("there"))
    finally:
        logs.remove()
    said = [line.rpartition(" ")[2] for line in logs.text.getvalue().splitlines()]
    assert said == ["thread", "there"]


@pytest.mark.parametrize("thread", ["main", "other"])
def test_a_record_goes_where_the_logger_of_its_name_sends_it(thread: str) -> None:
    ours, known = (
        StoreLogger("cqstore.store.some.module"),
        logging.getLogger("cqstore.store.some.module"),
    )
    texts: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(f"{record.name} {record.funcName} {record.getMessage()}")

    def say(text: str) -> list[str]:
        texts.clear()
        if thread == "main":
            ours.warning("%s", text)
        else:
            in_thread(lambda: ours.warning("%s", text))
        return [*texts]

    handlers = [Keep(), Keep()]
    known.addHandler(handlers[0])
    logging.getLogger("cqstore.store").addHandler(handlers[1])
    function = "say" if thread == "main" else "<lambda>"
    try:
        assert say("1") == [f"cqstore.store.some.module {function} 1"] * 2
        handlers[1].setLevel(logging.ERROR)
        assert len(say("2")) == 1
        known.propagate = False
        handlers[1].setLevel(logging.NOTSET)
        assert len(say("3")) == 1
        known.addFilter(lambda record: record.getMessage() != "4")
        assert say("4") == []
        assert len(say("5")) == 1
        for silence in (
            partial(known.setLevel, logging.ERROR), partial(vars(known).update, disabled=True),
            partial(logging.disable, logging.WARNING),
        ):  # fmt: skip
            silence()
            assert say("6") == []
            known.setLevel(logging.NOTSET)
            known.disabled = False
            logging.disable(logging.NOTSET)
            assert len(say("7")) == 1
        known.handlers[0].setLevel(logging.ERROR)
        assert say("8") == []
    finally:
        known.handlers.clear()
        known.filters.clear()
        known.propagate = True
        logging.getLogger("cqstore.store").removeHandler(handlers[1])
