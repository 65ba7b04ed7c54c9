"""``ReputService``: full batches are dispatched beside the writer, where they take long."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cqstore import Message, MessageStore, StoreConfig
from cqstore.store.concurrency.thread import StoreThread
from cqstore.store.errors import NestedCallError, StoreError, StoreFailedError, StoreIOError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.service.dispatching.reput import (
    HIGH_SECONDS,
    LOW_SECONDS,
    MODE,
    BatchCost,
    ReputService,
)
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.runtime.environment import usable_cores
from tests.kit.faults import ENOSPC, Faults
from tests.kit.interrupts import Interrupted, run_interrupted
from tests.kit.own_threads import own_threads
from tests.kit.product_tree import ROOT
from tests.kit.reput import THREAD, HeldBatch, running, use_always
from tests.kit.waiting import until

LIMIT = 8
MOST = 4 * LIMIT
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 16, dispatch_slice=LIMIT, rocksdb_memory_bytes=16 << 20,
    flush_interval_commit_log=3_600_000,
)  # fmt: skip
"""The flush thread does not come by."""
by_itself = pytest.mark.skipif(MODE != "", reason="of the rule that decides by itself")


def open_store(root: Path, backend: str = "file", **changes: Any) -> MessageStore:
    config = CONFIG.model_copy(update=changes)
    return MessageStore.open(root, config, backend=backend, housekeeping=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    """A store whose dispatch thread takes every full batch."""
    with open_store(tmp_path / "s") as made:
        use_always(made)
        yield made


def put(store: MessageStore, count: int) -> None:
    for _ in range(count):
        assert store.put_message(Message("t", b"x", 0)).ok


def put_held(store: MessageStore, monkeypatch: pytest.MonkeyPatch) -> HeldBatch:
    """Put a batch, of which the thread is in the middle then."""
    held = HeldBatch(store, monkeypatch)
    put(store, LIMIT)
    assert held.entered.wait(60)
    return held


# ---- beside the writer


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_a_reader_sees_what_was_put_before_though_a_batch_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    seen: list[int] = []
    with open_store(tmp_path, backend) as store:
        use_always(store)
        held = put_held(store, monkeypatch)
        put(store, 5)
        with running(lambda: seen.append(store.max_offset("t", 0))):
            assert seen == []
            held.open.set()
        assert seen == [LIMIT + 5]
        assert [len(m.body) for m in store.get_message("t", 0, 0).messages()] == [1] * (LIMIT + 5)


def test_puts_take_the_fast_path_while_a_batch_is_under_way(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = put_held(store, monkeypatch)
    calls: list[int] = []
    monkeypatch.setattr(
        components_of(store).dispatcher, "drain_unless_busy", lambda: calls.append(1)
    )
    put(store, MOST - 1)
    assert calls == []
    assert len(components_of(store).dispatcher.pending.units) == MOST - 1
    held.open.set()


def test_the_writer_waits_where_too_much_waits(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, done = put_held(store, monkeypatch), list[int]()

    def write() -> None:
        for number in range(10 * MOST):
            put(store, 1)
            done.append(number)

    with running(write):
        until(lambda: len(components_of(store).dispatcher.pending.units) == MOST)
        assert len(done) == MOST - 1
        held.open.set()
    assert max(held.sizes) <= MOST
    assert store.max_offset("t", 0) == LIMIT + 10 * MOST


def test_a_batch_that_is_over_leaves_the_limit_as_it_was(store: MessageStore) -> None:
    dispatcher = components_of(store).dispatcher
    reput = dispatcher.reput
    for done in range(1, 4):
        put(store, LIMIT)
        until(lambda: not dispatcher.has_undispatched and reput.batches >= done)  # noqa: B023
        assert dispatcher.full_at == LIMIT
    assert store.metrics.snapshot().reput_batches == reput.batches
    assert store.metrics.snapshot().reput_active


@pytest.mark.parametrize("kind", ["list", "client batch", "bytes"])
def test_every_kind_of_put_leaves_its_batch_to_the_thread(
    tmp_path: Path, store: MessageStore, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    messages = [Message("t", b"x", 0)] * LIMIT
    held = HeldBatch(store, monkeypatch)
    if kind == "list":
        assert all(each.ok for each in store.put_messages(messages))
    elif kind == "client batch":
        batch = Message("t", encode_client_batch(messages), 0)
        assert all(each.ok for each in store.put_client_batch(batch))
    else:
        with open_store(tmp_path / "other") as other:
            put(other, LIMIT)
            file = next(iter(components_of(other).log.files))
            data = bytes(file.read(0, other.max_phy_offset()))
        store.append_to_commit_log(0, data)
    assert held.entered.wait(60)
    held.open.set()
    assert store.max_offset("t", 0) == LIMIT


# ---- faults


def test_a_failure_in_the_thread_fails_the_store_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    use_always(store)
    held = put_held(store, monkeypatch)
    put(store, 3)
    held.error = StoreIOError("cannot write units: Input/output error")
    held.open.set()
    until(lambda: THREAD not in own_threads())
    assert components_of(store).state.failure is held.error
    assert not components_of(store).dispatcher.reput.is_active
    calls: list[Callable[[], None]] = [lambda: put(store, 1), store.flush]
    for call in calls:
        with pytest.raises(StoreFailedError) as met:
            call()
        assert met.value.__cause__ is held.error
    with suppress(StoreError):
        store.close()
    with open_store(tmp_path) as again:
        assert not again.last_exit_ok
        assert again.max_offset("t", 0) == LIMIT + 3


def test_a_full_disk_that_the_thread_meets_stalls_the_dispatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    store = open_store(tmp_path)
    reput = use_always(store)
    put(store, 1)
    assert store.max_offset("t", 0) == 1
    faults.fail("write", ENOSPC, "/consumequeue/")
    put(store, LIMIT)
    until(lambda: store.metrics.snapshot().dispatch_stalled)
    assert "No space left" in store.put_message(Message("t", b"x", 0)).reason
    faults.heal()
    put(store, MOST + 3)
    assert reput.is_active
    assert store.max_offset("t", 0) == 1 + LIMIT + MOST + 3
    store.close()
    with open_store(tmp_path) as again:
        assert again.last_exit_ok
        assert again.max_offset("t", 0) == 1 + LIMIT + MOST + 3


def test_a_close_waits_for_the_batch_that_is_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    reput = use_always(store)
    held = put_held(store, monkeypatch)
    put(store, 3)
    with running(store.close):
        until(lambda: reput._stopped)
        assert not store._shutdown.ended
        held.open.set()
    assert THREAD not in own_threads()
    with open_store(tmp_path) as again:
        assert again.last_exit_ok
        assert again.max_offset("t", 0) == LIMIT + 3


def test_the_thread_cannot_close_its_own_store(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[BaseException] = []

    def close() -> None:
        try:
            store.close()
        except NestedCallError as exc:
            met.append(exc)

    monkeypatch.setattr(components_of(store).dispatcher.reput, "_drain", close)
    put(store, LIMIT)
    until(lambda: bool(met))
    assert THREAD in str(met[0])
    assert not components_of(store).dispatcher.reput._stopped  # refused before anything was done


def test_an_interrupted_put_leaves_the_batch_to_whichever_comes_next(store: MessageStore) -> None:
    total = 0

    def put_at(number: int) -> int:
        nonlocal total
        put(store, LIMIT - 1)
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(lambda: put(store, 1), number)
        put(store, MOST + 1)
        assert len(components_of(store).dispatcher.pending.units) <= MOST
        seen = store.max_offset("t", 0)
        assert seen - total in {LIMIT + MOST, LIMIT + MOST + 1}  # the interrupted put may be in
        total = seen
        assert components_of(store).state.failure is None
        return places

    places = put_at(0)
    assert places > 3
    for number in range(1, places + 1):
        put_at(number)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["exit", "fork"])
def test_the_process_ends_or_forks_in_the_middle_of_a_batch(tmp_path: Path, what: str) -> None:
    words = [sys.executable, "-m", "tests.kit.reput_child", str(tmp_path), what]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    forked = ["StoreStateError", "child 0", "21"]
    assert done.stdout.splitlines() == (forked if what == "fork" else ["20"])
    with open_store(tmp_path) as store:
        assert store.last_exit_ok == (what == "fork")
        assert store.max_offset("t", 0) == (21 if what == "fork" else 20)
        assert [finding for finding in store.check() if finding.damage] == []


# ---- when it is used


@pytest.mark.parametrize(
    ("batches", "high"),
    [
        ([HIGH_SECONDS], False),
        ([HIGH_SECONDS] * 2, True),
        ([HIGH_SECONDS, LOW_SECONDS, HIGH_SECONDS], False),
        ([HIGH_SECONDS] * 2 + [LOW_SECONDS] * 9, True),  # between the two it stays
        ([HIGH_SECONDS * 0.99] * 9, False),
        ([HIGH_SECONDS] * 2 + [LOW_SECONDS * 0.99], True),
        ([HIGH_SECONDS] * 2 + [LOW_SECONDS * 0.99] * 2, False),
        ([HIGH_SECONDS] * 2 + [LOW_SECONDS * 0.99, HIGH_SECONDS, LOW_SECONDS * 0.99], True),
    ],
)
def test_two_batches_in_a_row_change_the_mind(batches: list[float], high: bool) -> None:  # noqa: FBT001
    cost = BatchCost()
    for seconds in batches:
        cost.add(seconds, 100, 100)
    assert cost.is_high is high


def test_a_batch_counts_as_one_of_the_limit() -> None:
    cost = BatchCost()
    for _ in range(2):
        cost.add(HIGH_SECONDS * 3.9, 400, 100)  # four batches in one
    assert not cost.is_high
    for _ in range(2):
        cost.add(HIGH_SECONDS * 0.5, 50, 100)
    assert cost.is_high


class Ticking:
    """A clock by which a batch takes ``seconds``."""

    def __init__(self) -> None:
        self.now, self.seconds = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@by_itself
def test_the_thread_comes_where_batches_take_long_and_rests_where_they_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Ticking()
    with open_store(tmp_path, flush_interval_commit_log=1) as store:
        reput = components_of(store).dispatcher.reput
        monkeypatch.setattr(reput, "_cores", lambda: 2)
        monkeypatch.setattr(reput.cost, "clock", clock)
        assert THREAD not in own_threads()

        def put_batches() -> bool:
            put(store, LIMIT)
            return reput.batches > 3

        clock.seconds = 2 * HIGH_SECONDS
        until(put_batches)
        assert store.metrics.snapshot().reput_active
        clock.seconds = 0.0

        def rests() -> bool:
            put(store, LIMIT)
            return not reput.is_active

        until(rests)
        assert not store.metrics.snapshot().reput_active
        assert own_threads().count(THREAD) == 1
        store.max_offset("t", 0)
        before = reput.batches
        put(store, 10 * LIMIT)
        assert reput.batches == before


@by_itself
def test_a_process_with_one_core_has_no_thread(tmp_path: Path) -> None:
    for cores, started in [(1, False), (2, True)]:
        reput = ReputService(lambda: None, lambda _: None, lambda: cores)  # noqa: B023
        reput.start_if_wanted()
        assert reput.worker is None  # it is not wanted yet
        reput.cost.is_high = True
        reput.start_if_wanted()
        assert (reput.worker is not None) is started
        reput.stop()


def test_writers_go_on_where_no_thread_can_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("cqstore.store.service.dispatching.reput.MODE", "never")
    monkeypatch.setattr("cqstore.store.service.opening.open_store.MODE", "never")
    with open_store(tmp_path) as store:
        reput = components_of(store).dispatcher.reput
        reput._mode = "always"

        def start(_: StoreThread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patched:
            patched.setattr(StoreThread, "start", start)
            reput.start_if_wanted()
        reput.start_if_wanted()  # it was tried once
        assert "can't start new thread" in caplog.text
        assert THREAD not in own_threads()
        put(store, 3 * LIMIT)
        assert components_of(store).dispatcher.full_at == LIMIT
        assert len(components_of(store).dispatcher.pending.units) < LIMIT
        assert not store.metrics.snapshot().reput_active


@by_itself
def test_neither_an_opening_nor_puts_of_cheap_batches_start_it(tmp_path: Path) -> None:
    with open_store(tmp_path, flush_interval_commit_log=1) as store:
        components_of(store).dispatcher.reput.cost.clock = Ticking()
        put(store, 20 * LIMIT)
        assert store.max_offset("t", 0) == 20 * LIMIT
        assert THREAD not in own_threads()
    with MessageStore.open(tmp_path, read_only=True):
        assert THREAD not in own_threads()


@pytest.mark.parametrize("said", ["yes", "ALWAYS"])
def test_another_word_for_the_switch_is_refused(said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import cqstore.store.service.dispatching.reput"],
        capture_output=True, text=True, check=False,
        env=os.environ | {"CQSTORE_REPUT_THREAD": said},  # a sanitizer comes by it
        cwd=ROOT,
    )  # fmt: skip
    assert (
        f"CQSTORE_REPUT_THREAD: invalid value {said!r}: expected 'always', 'never', or unset"
        in done.stderr
    )


def test_a_quota_of_a_control_group_leaves_fewer_cores(tmp_path: Path) -> None:
    bound = usable_cores(tmp_path / "none", tmp_path / "none")
    groups, own = tmp_path / "groups", tmp_path / "cgroup"
    (groups / "a" / "b").mkdir(parents=True)
    own.write_text("12:cpu:/old\n0::/a/b\n")
    assert usable_cores(groups, own) == bound
    (groups / "cpu.max").write_text("100 100\n")  # of another one of these groups' trees
    cases = {"max 100000\n": 1, "50000 100000\n": 1, "199999 100000\n": 1}
    for text, cores in cases.items():
        (groups / "a" / "cpu.max").write_text(text)
        assert usable_cores(groups, own) == cores, text
    (groups / "cpu.max").write_text("odd\n")
    (groups / "a" / "cpu.max").write_text("100000000 100000\n")
    assert usable_cores(groups, own) == bound
    (groups / "a" / "b" / "cpu.max").write_text("100000 100000\n")
    assert usable_cores(groups, own) == 1
