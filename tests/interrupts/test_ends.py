"""Threads that end, closes that meet, openings that fail, states that are for good."""

import errno
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.concurrency.wakeup import Latch
from cqstore.store.errors import StoreClosedError, StoreError, StoreFailedError, StoreIOError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.encoded import Encoded
from cqstore.store.service.writing.putter import Putter
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.faults import Faults
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.own_threads import own_threads
from tests.kit.quiet_config import quiet_config
from tests.kit.waiting import run_threads, running_threads, until

SECONDS = 30
SMALL = StoreConfig(mapped_file_size_commit_log=65536)
SYNC = quiet_config(
    flush_disk_type=FlushDiskType.SYNC_FLUSH, mapped_file_size_commit_log=65536,


)  # fmt: skip


def reopened(root: Path) -> int:
    """Return how many messages of topic ``t`` a new opening finds, without damage."""
    with in_time(SECONDS), MessageStore.open(root) as store:
        assert not any(finding.damage for finding in store.check())
        return store.max_offset("t", 0)


def test_a_flush_thread_that_ends_fails_the_store_and_those_who_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path, SYNC)
    assert store.put_message(Message("t", b"durable")).ok

    all_wait = threading.Event()

    def broken(_: int) -> None:
        all_wait.wait(SECONDS)
        raise RuntimeError("not foreseen")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        futures = [store.put_message_future(Message("t", b"never")) for _ in range(3)]
        all_wait.set()
        for future in futures:
            with pytest.raises(StoreFailedError, match="not foreseen"):
                future.result(SECONDS)
    late: Future[bool] = Future()  # of a put that came to the log before the thread had ended
    components_of(store).flush.when_durable(store.max_phy_offset(), late)
    with pytest.raises(StoreFailedError, match="not foreseen"):
        late.result(SECONDS)
    with pytest.raises(StoreFailedError, match="not foreseen"):
        store.put_message(Message("t", b"refused"))
    with suppress(StoreError):
        store.close()
    assert (tmp_path / "abort").exists()
    assert reopened(tmp_path) >= 1


def test_a_thread_that_looks_at_old_files_and_ends_fails_the_store(tmp_path: Path) -> None:
    class Broken(Environment):
        def wait(self, stop: Latch, seconds: float) -> bool:
            _ = seconds
            return stop.is_set()

        def used_percent(self, folder: Path) -> int:
            raise RuntimeError(f"not foreseen at {folder}")

    store = open_served(MessageStore, tmp_path, SMALL, OpenOptions(environment=Broken()))
    until(lambda: "cqstore-expiry" not in own_threads())
    with pytest.raises(StoreFailedError, match="not foreseen"):
        store.put_message(Message("t", b"refused"))
    with suppress(StoreError):
        store.close()


@pytest.mark.parametrize("end", ["fail", "close", "leave_to_parent"])
@pytest.mark.parametrize("reason", ["", "full"])
def test_an_end_is_for_good_wherever_room_on_the_disk_is_told(
    tmp_path: Path, end: str, reason: str
) -> None:
    def ended_at(number: int) -> tuple[RunningState, int]:
        state = RunningState(tmp_path, read_only=False)
        state.set_disk_full("full")
        ends = {
            "fail": lambda: state.fail(StoreIOError("the disk refused")),
            "close": state.close, "leave_to_parent": state.leave_to_parent,
        }  # fmt: skip
        return state, run_interrupted(lambda: state.set_disk_full(reason), number, ends[end])

    _, places = ended_at(0)
    assert places > 3
    for number in range(1, places + 1):
        state, _ = ended_at(number)
        assert state.unwritable, number


def test_a_read_only_store_has_no_thread_of_its_own(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        assert store.put_message(Message("t", b"x")).ok
        assert own_threads()
    with MessageStore.open(tmp_path, SMALL, read_only=True):
        assert not own_threads()


def test_a_closed_store_takes_no_write_and_says_that_it_is_closed(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        assert store.put_message(Message("t", b"x")).ok
    for write in (
        lambda: store.put_message(Message("t", b"x")),
        lambda: store.put_messages([Message("t", b"x")]),
        lambda: store.delete_topic("t"),
        lambda: store.rebuild_queues("t"),
    ):
        with pytest.raises(StoreClosedError):
            write()
    assert reopened(tmp_path) == 1


def test_a_process_that_forgets_to_close_ends_and_has_lost_nothing(tmp_path: Path) -> None:
    lines = (
        "import sys",
        "from cqstore.store.record.message import Message",
        "from cqstore.store.service.message_store import MessageStore",
        "from cqstore.store.settings.config import StoreConfig",
        "small = StoreConfig(mapped_file_size_commit_log=65536)",
        "store = MessageStore.open(sys.argv[1], small)",
        "assert store.put_message(Message('t', b'x')).ok",
    )
    words = [sys.executable, "-c", "\n".join(lines), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "abort").exists()
    assert reopened(tmp_path) == 1


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_closes_that_meet_close_once_and_well(tmp_path: Path, backend: str) -> None:
    for number in range(10):
        store = MessageStore.open(tmp_path, SMALL, backend=backend)
        store.put_message(Message("t", b"m"))
        start = threading.Barrier(4)
        faults: list[BaseException] = []

        def close(
            store: MessageStore = store, start: threading.Barrier = start,
            faults: list[BaseException] = faults,
        ) -> None:  # fmt: skip
            start.wait(SECONDS)
            try:
                store.close()
                assert not (tmp_path / "abort").exists()
            except BaseException as exc:  # noqa: BLE001 - told by the test
                faults.append(exc)

        threads = [threading.Thread(target=close) for _ in range(4)]
        run_threads(threads, SECONDS)
        assert faults == []
        assert reopened(tmp_path) == number + 1


def test_an_opening_that_fails_late_leaves_no_thread_and_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageStore.open(tmp_path, SMALL) as store:
        store.put_message(Message("t", b"m"))
    before = own_threads()
    with monkeypatch.context() as patch:
        faults = Faults(patch)
        faults.fail("unlink", errno.EIO, "replacing")
        with pytest.raises(StoreIOError):
            MessageStore.open(tmp_path, SMALL, recovery=RecoveryOptions(rebuild=Rebuild.QUEUES))
        assert faults.refused
    assert own_threads() == before
    real = threading.Thread.start
    with monkeypatch.context() as patch:

        def start(thread: threading.Thread) -> None:
            if thread.name == "cqstore-expiry":
                raise RuntimeError("can't start new thread")
            real(thread)

        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="new thread"):
            MessageStore.open(tmp_path, SMALL)
    assert own_threads() == before
    assert reopened(tmp_path) == 1


def test_a_put_that_comes_to_the_lock_behind_a_close_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its record would lie behind the last flush, and the store would pass for whole."""
    store = MessageStore.open(tmp_path, SMALL)
    encoded, closed = threading.Event(), threading.Event()
    assert isinstance(store._putter, Putter)
    appender = store._putter._append
    real, outcome = appender.encoded, list[object]()

    def append(records: Encoded, *, whole: bool) -> list[PutMessageResult]:
        encoded.set()
        assert closed.wait(SECONDS)
        return real(records, whole=whole)

    def put() -> None:
        try:
            outcome.append(store.put_message(Message("t", b"late")))
        except StoreError as exc:
            outcome.append(exc)

    monkeypatch.setattr(appender, "encoded", append)
    thread = threading.Thread(target=put)
    thread.start()
    assert encoded.wait(SECONDS)
    end = store.max_phy_offset()
    store.close()
    closed.set()
    thread.join(SECONDS)
    assert isinstance(outcome[0], StoreClosedError)
    assert store.max_phy_offset() == end
    assert reopened(tmp_path) == 0


def test_a_follower_that_is_interrupted_leaves_the_others_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore.open(tmp_path, SYNC)
    entered, go_on, real = threading.Semaphore(0), threading.Event(), os.fdatasync

    def sync(fd: int) -> None:
        entered.release()
        assert go_on.wait(SECONDS)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", sync)
    done: list[bool] = []

    def put() -> None:
        done.append(store.put_message(Message("t", b"m")).ok)

    leader = threading.Thread(target=put)
    leader.start()
    assert entered.acquire(timeout=SECONDS)

    def interrupt() -> None:
        until(lambda: components_of(store).commit.waiting == 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        until(interrupted.is_set)
        others = [threading.Thread(target=put) for _ in range(3)]
        with running_threads(others, SECONDS):
            until(lambda: components_of(store).log.appended_records == 5)
            go_on.set()

    interrupted = threading.Event()

    def handler(*_: object) -> None:
        interrupted.set()
        raise Interrupted

    previous = signal.signal(signal.SIGUSR1, handler)
    helper = threading.Thread(target=interrupt)
    try:
        helper.start()
        with pytest.raises(Interrupted):
            store.put_message(Message("t", b"mine"))
    finally:
        helper.join(SECONDS)
        signal.signal(signal.SIGUSR1, previous)
    leader.join(SECONDS)
    assert done == [True] * 4
    with in_time(SECONDS):
        store.flush()
        store.close()
    assert not (tmp_path / "abort").exists()
    assert reopened(tmp_path) == 5


def test_an_index_file_that_a_thread_could_not_flush_is_not_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SMALL.model_copy(
        update={"max_hash_slot_num": 20, "max_index_num": 10, "dispatch_slice": 1}
    )
    store = MessageStore.open(tmp_path, config)
    real = os.fdatasync

    def broken(fd: int) -> None:
        if threading.current_thread().name == "cqstore-index-flush":
            raise RuntimeError("not foreseen")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", broken)

    def fill() -> None:
        for number in range(40):
            store.put_message(Message("t", b"m", 0, {"KEYS": f"k{number}"}))
        store.flush()

    with pytest.raises(StoreFailedError, match="not foreseen"):
        fill()
    with suppress(StoreError):
        store.close()
    monkeypatch.undo()
    assert (tmp_path / "abort").exists()
    assert reopened(tmp_path) >= 10


def test_a_log_file_that_could_not_be_made_ahead_is_made_when_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failed = os.posix_fallocate, threading.Event()

    def broken(fd: int, offset: int, length: int) -> None:
        if threading.current_thread().name == "cqstore-allocate":
            failed.set()
            raise RuntimeError("not foreseen")
        real(fd, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", broken)
    with MessageStore.open(tmp_path, StoreConfig(mapped_file_size_commit_log=4096)) as store:
        for _ in range(30):
            assert store.put_message(Message("t", b"m" * 300)).ok
    assert failed.is_set()
    assert reopened(tmp_path) == 30
