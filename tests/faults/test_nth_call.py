"""A fault in the n-th call of each system call, for every n: nothing acknowledged is missing."""

import os
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from errno import EINTR, ENOSPC
from pathlib import Path

import pytest

from cqstore.store.errors import StoreError, StoreIOError
from cqstore.store.queue.backends import backend_names
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.store_copy import copy_store
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES
from tests.kit.faults import EIO, Faults
from tests.kit.mutations import in_time
from tests.kit.nth_call import FAULTS, Case, NthCall, faults_of
from tests.kit.told import CONFIG, AcknowledgedWrites

STORES = [("file", RocksDBEngine.AUTO), *[("rocksdb", engine) for engine in ENGINES]]
SAMPLES = {"file": 20, "rocksdb": 6}
"""Faults of each store that the normal run tries: as many on every machine."""
NEVER = {
    STORES[0]: {"msync", "sync_file_range"},
    ("rocksdb", RocksDBEngine.ROCKSDICT): {"msync", "sync_file_range"},
    ("rocksdb", RocksDBEngine.NATIVE): {"msync"},
}
"""Calls that no store makes."""
UNREPORTED = {
    "fsync": re.compile(r"commitlog(/\d{20})?|cqstore(/(file-queue-ends\.npz|index-files)\.new)?"),
    "fdatasync": re.compile("cqstore/synced"),
}
"""Syncs that may fail without a word: a file made ahead is made again, and three hints are let go.

A compaction of RocksDB's, too, of which the close makes an end: its tables stay.
"""
SECONDS = 60
"""What one fault may take at most."""
LIVES = 2


def run(root: Path, backend: str, engine: RocksDBEngine, written: AcknowledgedWrites) -> None:
    """Open, work, close, and once more."""
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    for _ in range(LIVES):
        with MessageStore.open(root, config, backend=backend) as store:
            written.work(store)


def count(calls: NthCall, root: Path, backend: str, engine: RocksDBEngine) -> None:
    """Count the calls that the script makes."""
    calls.count()
    run(root, backend, engine, AcknowledgedWrites())
    calls.heal()
    shutil.rmtree(root)
    check_seen(calls, backend)


def check_seen(calls: NthCall, backend: str) -> None:
    """The calls of what is compiled are among those that are met."""
    if backend == "file":
        assert calls.foreign["pwrite"] > 0
    else:
        for call in ("write", "fdatasync", "rename"):
            assert calls.foreign[call] > 0, call


def try_case(calls: NthCall, root: Path, backend: str, engine: RocksDBEngine, case: Case) -> bool:
    """Let one fault happen, open the store again twice; return whether it happened."""
    written = AcknowledgedWrites()
    calls.arm(case)
    met: StoreError | None = None
    try:
        run(root, backend, engine, written)
    except StoreError as exc:
        met = exc
    calls.heal()
    if isinstance(met, StoreIOError):
        assert met.path is not None, met
        assert met.path.is_relative_to(root), met
    if met is None and len(written.stored) == written.requested and calls.struck:
        check_harmless(case, calls.struck, root)
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    with MessageStore.open(root, config, backend=backend) as store:
        written.check(store)
        written.work(store)
    with MessageStore.open(root, config, backend=backend) as store:
        written.check(store)
    shutil.rmtree(root)
    return bool(calls.struck)


def check_harmless(case: Case, struck: str, root: Path) -> None:
    """What was not acknowledged promised nothing: no sync of what was acknowledged is among it."""
    path, kept = struck.partition("/")[2], UNREPORTED.get(case.call)
    if kept is None or case.code == EINTR or kept.fullmatch(path):
        return
    if case.code == ENOSPC and re.fullmatch(r"index(/index\.new)?", path):
        return  # the dispatch waits for room, and makes that file anew
    logs = (root / "cqstore" / "rocksdb-log").glob("*LOG*")
    assert any("Compaction error" in log.read_text(errors="replace") for log in logs), "noop"


def try_cases(
    calls: NthCall, root: Path, backend: str, engine: RocksDBEngine, cases: Sequence[Case]
) -> None:
    struck = 0
    for case in cases:
        try:
            with in_time(SECONDS):
                struck += try_case(calls, root, backend, engine, case)
        except BaseException as exc:
            exc.add_note(f"{case} at {calls.struck} by {calls.caller}")
            raise
    print(f"\n{backend} {engine.value}: {len(cases)} cases, {struck} struck")  # noqa: T201
    assert struck > 0.8 * len(cases) > 0  # threads of RocksDB's may make some less


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[NthCall]:
    with NthCall(tmp_path) as calls:
        yield calls


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_fault_in_one_call_loses_nothing(
    calls: NthCall, tmp_path: Path, backend: str, engine: RocksDBEngine
) -> None:
    root = tmp_path / "store"
    count(calls, root, backend, engine)
    seed = int(os.environ.get("CQSTORE_SEED", "1"))
    cases = random.Random(seed).sample([*calls.cases()], SAMPLES[backend])
    try_cases(calls, root, backend, engine, cases)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("call", FAULTS)
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_fault_in_any_call_loses_nothing(
    calls: NthCall, tmp_path: Path, backend: str, engine: RocksDBEngine, call: str,
    drawn_places: Callable[[int, int], range],
) -> None:  # fmt: skip
    """Each call meets one of its faults; which of them, the seed draws."""
    root = tmp_path / "store"
    count(calls, root, backend, engine)
    met = calls.counts[call]
    assert (met == 0) == (call in NEVER[backend, engine])
    if met:
        kinds = len(faults_of(call, 1))
        (first,) = drawn_places(kinds, 1)
        cases = [faults_of(call, at)[(first + at) % kinds] for at in drawn_places(met, met)]
        try_cases(calls, root, backend, engine, cases)


@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_writes_of_which_a_part_is_taken_are_gone_on_with(
    calls: NthCall, tmp_path: Path, backend: str, engine: RocksDBEngine
) -> None:
    written = AcknowledgedWrites()
    calls.write_parts_only()
    run(tmp_path / "store", backend, engine, written)
    copy_store(tmp_path / "store", tmp_path / "copy")
    assert calls.counts["pwrite"] + calls.counts["write"] > 50
    check_seen(calls, backend)
    calls.heal()
    for name in ("store", "copy"):
        with MessageStore.open(tmp_path / name, CONFIG, backend=backend) as store:
            written.check(store)
            assert len(written.stored) == written.requested


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_whose_marker_cannot_be_removed_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    written, faults = AcknowledgedWrites(), Faults(monkeypatch)
    store = MessageStore.open(tmp_path, CONFIG, backend=backend, housekeeping=False)
    written.work(store)
    faults.fail("unlink", EIO, "/abort", times=1)
    with pytest.raises(StoreIOError, match="abort"):
        store.close()
    assert faults.refused == 1
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        assert not store.report.last_exit_ok
        written.check(store)
