"""Calls from inside other calls of the same thread: refused or done, never a wait for itself.

A signal's handler, a finalizer and a callback of the garbage collector are such callers. The outer
call ends as if there had been none, and the store is whole.
"""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path

import pytest

from cqstore.store.errors import NestedCallError, StoreClosedError
from cqstore.store.record.client_batch import encode_client_batch
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType
from tests.kit.interrupts import run_interrupted
from tests.kit.mutations import in_time
from tests.kit.quiet_config import quiet_config

SECONDS = 60
SHARE = 8
"""Places of an outer call that the normal run takes, for each inner one."""
MANY = 150
"""As many the long run takes, of up to some thousand."""
TOPIC, GONE = "t", "gone"
SMALL = quiet_config(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, queue_files_max=16,
    max_hash_slot_num=20, max_index_num=400, rocksdb_hot_queues=3, rocksdb_memory_bytes=16 << 20,


)  # fmt: skip
VARIANTS = [("file", "async"), ("file", "sync"), ("rocksdb", "async"), ("both", "sync")]


class Case:
    """An open store, and the bodies by their offsets that it has acknowledged."""

    def __init__(self, root: Path, backend: str, flush: str) -> None:
        changes: dict[str, object] = {"rocksdb_cq_double_write_enable": backend == "both"}
        if flush == "sync":
            changes["flush_disk_type"] = FlushDiskType.SYNC_FLUSH
        self.root = root
        self.config = SMALL.model_copy(update=changes)
        self.backend = None if backend == "both" else backend
        self.acknowledged: dict[int, bytes] = {}
        self.refused = self.requested = 0
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(
            self.root, self.config, backend=self.backend, housekeeping=False
        )
        for queue in range(4):  # queues that the caches have, and some that they have not
            self.store.put_messages(
                [Message("other", b"o", queue), Message("rebuilt", b"r", queue)]
            )

    def _message(self) -> Message:
        self.requested += 1
        return Message(
            TOPIC, b"%d" % self.requested, 0, {"TAGS": "a", "KEYS": f"k{self.requested}"}
        )

    def _note(self, bodies: Sequence[bytes], results: Sequence[object]) -> None:
        for body, done in zip(bodies, results, strict=True):
            assert done.ok, done  # type: ignore[attr-defined]
            offset = done.queue_offset  # type: ignore[attr-defined]
            assert offset not in self.acknowledged
            self.acknowledged[offset] = body

    def put(self) -> None:
        message = self._message()
        self._note([message.body], [self.store.put_message(message)])

    def put_odd(self) -> None:
        """The slow path."""
        message = Message(TOPIC, b"x%d" % self.requested, 0, {"TIMER_ROLL_TIMES": "1"})
        self.requested += 1
        self._note([message.body], [self.store.put_message(message)])

    def put_list(self) -> None:
        messages = [self._message() for _ in range(3)]
        messages[1].properties["TIMER_ROLL_TIMES"] = "1"
        self._note([each.body for each in messages], self.store.put_messages(messages))

    def put_batch(self) -> None:
        messages = [self._message() for _ in range(3)]
        batch = Message(TOPIC, encode_client_batch(messages), 0)
        self._note([each.body for each in messages], self.store.put_client_batch(batch))

    def put_async(self) -> None:
        message = self._message()
        future = self.store.put_message_future(message)
        self._note([message.body], [future.result(SECONDS)])

    def get(self) -> None:
        found = self.store.get_message(TOPIC, 0, 0)
        if self.acknowledged:
            assert [each.body for each in found.messages()][:1] == [self.acknowledged[0]]
        for queue in range(4):
            assert self.store.max_offset("other", queue) >= 1

    def query(self) -> None:
        self.store.query_message(TOPIC, "k1")

    def flush(self) -> None:
        self.store.flush()

    def delete(self) -> None:
        self.store.delete_topics([GONE, "never"])

    def rebuild(self) -> None:
        self.store.rebuild_queues("rebuilt")

    def close(self) -> None:
        self.store.close()

    def nested(self, inner: Callable[["Case"], object]) -> None:
        try:
            inner(self)
        except NestedCallError:
            self.refused += 1
        except StoreClosedError:
            assert components_of(self.store).state.closed

    def compare(self) -> None:
        """Close, open anew, and find what was acknowledged."""
        assert components_of(self.store).state.failure is None
        self.store.close()
        assert not (self.root / "abort").exists()
        self.open()
        known = self.acknowledged
        assert [finding for finding in self.store.check() if finding.damage] == []
        assert self.store.max_offset(TOPIC, 0) == len(known)
        assert sorted(known) == list(range(len(known)))
        offset = 0
        while offset < len(known):
            found = self.store.get_message(TOPIC, 0, offset, 32).messages()
            assert [each.body for each in found] == [
                known[at] for at in range(offset, offset + len(found))
            ]
            offset += len(found)


OUTER: dict[str, Callable[[Case], object]] = {
    "put": Case.put, "odd": Case.put_odd, "list": Case.put_list, "batch": Case.put_batch,
    "async": Case.put_async, "get": Case.get, "query": Case.query, "flush": Case.flush,
    "delete": Case.delete, "rebuild": Case.rebuild,
}  # fmt: skip
INNER: dict[str, Callable[[Case], object]] = {
    "put": Case.put, "list": Case.put_list, "get": Case.get, "query": Case.query,
    "flush": Case.flush, "delete": Case.delete, "rebuild": Case.rebuild,
}  # fmt: skip


@pytest.fixture(params=VARIANTS, ids="-".join)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(tmp_path / "store", *request.param)


def run(case: Case, outer: str, inner: Callable[[Case], object], share: int) -> None:
    """Call ``inner`` at places of ``outer``, each time in a state where there is much to do."""

    def prepared() -> None:
        case.put()
        case.store.put_message(Message(GONE, b"g"))

    def step() -> None:
        OUTER[outer](case)

    with in_time(SECONDS):
        prepared()
        places = run_interrupted(step)
        assert places > 3
        numbers = range(1, places + 1)
        for number in random.Random(outer).sample(numbers, min(share, places)):
            prepared()
            run_interrupted(step, number, lambda: case.nested(inner))
            assert components_of(case.store).state.failure is None, (
                number,
                components_of(case.store).state.failure,
            )
        case.compare()
    case.store.close()


PAIRS = list(product(["odd", "list", "get", "flush", "delete"], INNER))
SOME = [
    pytest.param(variant, outer, inner, id=f"{'-'.join(variant)}-{outer}-{inner}")
    for number, (outer, inner) in enumerate(PAIRS)
    for variant in VARIANTS[number % 2 :: 2]
]
"""Each pair in two of the variants; the long run takes all."""


@pytest.mark.parametrize(("case", "outer", "inner"), SOME, indirect=["case"])
def test_a_call_inside_another_is_refused_or_done(case: Case, outer: str, inner: str) -> None:
    run(case, outer, INNER[inner], SHARE)


@pytest.mark.long
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("outer", OUTER)
def test_a_call_anywhere_inside_another_is_refused_or_done(
    case: Case, outer: str, inner: str
) -> None:
    run(case, outer, INNER[inner], MANY)


@pytest.mark.parametrize("share", [6, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize("outer", ["odd", "list", "get", "flush", "delete", "close"])
def test_a_close_inside_another_call_is_refused_or_done(case: Case, outer: str, share: int) -> None:
    """Where it is done, what the outer call acknowledges all the same is there afterwards."""
    step = {**OUTER, "close": Case.close}[outer]
    with in_time(SECONDS):
        case.put()
        places = run_interrupted(lambda: step(case))
        case.compare()
        for number in random.Random(outer).sample(range(1, places + 1), min(share, places)):
            case.put()
            with suppress(StoreClosedError):
                run_interrupted(lambda: step(case), number, lambda: case.nested(Case.close))
            assert components_of(case.store).state.failure is None, (
                number,
                components_of(case.store).state.failure,
            )
            case.compare()
        case.store.close()


def test_a_close_in_a_thread_of_the_store_is_refused(tmp_path: Path) -> None:
    """It would wait for its own end."""
    met: list[BaseException] = []
    called = threading.Event()

    def close(_: object) -> None:
        try:
            store.close()
        except NestedCallError as exc:
            met.append(exc)
        called.set()

    config = SMALL.model_copy(update={"flush_disk_type": FlushDiskType.SYNC_FLUSH})
    store = MessageStore.open(tmp_path, config)
    go_on, real = threading.Event(), os.fdatasync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda fd: (go_on.wait(SECONDS), real(fd)))
        future = store.put_message_future(Message(TOPIC, b"m"))
        future.add_done_callback(close)
        go_on.set()
        assert called.wait(SECONDS)
    assert len(met) == 1
    assert "cqstore-flush" in str(met[0])
    assert store.put_message(Message(TOPIC, b"m")).ok
    store.close()
    assert not (tmp_path / "abort").exists()


CHILD = """
import gc, signal, sys
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from cqstore.store.errors import NestedCallError
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore

root, backend, flush = sys.argv[1:]
config = StoreConfig(
    mapped_file_size_commit_log=1 << 20, flush_disk_type=FlushDiskType[flush], dispatch_slice=8
)
store = MessageStore.open(root, config, backend=backend)
inner = refused = 0

def nested(*_):
    global inner, refused, busy
    if busy:
        return
    busy = True
    try:
        store.put_message(Message("t", b"inner", 1, {"TIMER_ROLL_TIMES": "1"}))
        inner += 1
        store.get_message("t", 1, max(inner - 8, 0), 1)
    except NestedCallError:
        refused += 1
    finally:
        busy = False

busy = False

class Finalized:
    def __init__(self):
        self.me = self  # for the collector alone

    def __del__(self):
        nested()

class Properties(dict):
    def __del__(self):
        nested()

signal.signal(signal.SIGALRM, nested)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0007)
gc.callbacks.append(nested)
gc.set_threshold(20)
for number in range(1500):
    Finalized()
    message = Message("t", b"outer", 0, Properties(KEYS=str(number)))
    done = store.put_message(message)
    assert done.queue_offset == number, done
    del message
    found = store.get_message("t", 0, number, 1).messages()
    assert found[0].queue_offset == number
    if number % 50 == 0:
        store.flush()
signal.setitimer(signal.ITIMER_REAL, 0)
gc.callbacks.clear()
gc.set_threshold(0)
busy = True
assert store.max_offset("t", 0) == 1500
there = store.max_offset("t", 1)
store.close()
print(inner, refused, there)
"""


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_finalizers_collections_and_signals_call_inside_calls(
    tmp_path: Path, backend: str, flush: str
) -> None:
    """In a process of their own, that is killed when it waits for itself."""
    root = tmp_path / "store"
    words = [sys.executable, "-c", CHILD, str(root), backend, flush]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stderr[-2000:]
    inner, refused, there = map(int, done.stdout.split())
    assert refused > 0
    assert inner == there > 0
    with MessageStore.open(root) as store:
        assert store.last_exit_ok
        assert (store.max_offset("t", 0), store.max_offset("t", 1)) == (1500, there)
        assert not any(finding.damage for finding in store.check())
