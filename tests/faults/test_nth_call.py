"""A fault in the n-th call of each system call, for every n: nothing acknowledged is missing."""

import os
import random
import shutil
import sys
from pathlib import Path

import pytest

from store.config import RocksDBEngine
from store.errors import StoreError, StoreIOError
from store.queue.backends import backend_names
from store.service.message_store import MessageStore
from store.service.upkeep.store_copy import copy_store
from tests.kit.engines import ENGINES
from tests.kit.faults import EIO, Faults
from tests.kit.nth_call import FAULTS, Case, NthCall
from tests.kit.told import CONFIG, Told

STORES = [("file", RocksDBEngine.AUTO), *[("rocksdb", engine) for engine in ENGINES]]
SAMPLE = 30
"""Faults of each store that the normal run tries: as many on every machine."""
"""How long a sample of one kind of store is tried."""
LIVES = 2


def run(root: Path, backend: str, engine: RocksDBEngine, told: Told) -> None:
    """Open, work, close, and once more."""
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    for _ in range(LIVES):
        with MessageStore.open(root, config, backend=backend) as store:
            told.work(store)


def cases_of(calls: NthCall, root: Path, backend: str, engine: RocksDBEngine) -> list[Case]:
    """Return every fault of every call that the script makes."""
    calls.counts.clear()
    run(root, backend, engine, Told())
    counts = dict(calls.counts)
    shutil.rmtree(root)
    return [
        Case(call, number, code)
        for call, codes in FAULTS.items()
        for number in range(1, counts.get(call, 0) + 1)
        for code in codes
    ]


def try_case(calls: NthCall, root: Path, backend: str, engine: RocksDBEngine, case: Case) -> bool:
    """Let one fault happen, open the store again twice; return whether it happened."""
    told = Told()
    calls.arm(case)
    met: StoreError | None = None
    try:
        run(root, backend, engine, told)
    except StoreError as exc:
        met = exc
    if isinstance(met, StoreIOError):
        assert met.path is not None, met
        assert met.path.is_relative_to(root), met
    calls.heal()
    config = CONFIG.model_copy(update={"rocksdb_engine": engine})
    with MessageStore.open(root, config, backend=backend) as store:
        told.check(store)
        told.work(store)
    with MessageStore.open(root, config, backend=backend) as store:
        told.check(store)
    shutil.rmtree(root)
    return bool(calls.struck)


def try_cases(calls: NthCall, root: Path, backend: str, engine: RocksDBEngine, most: int) -> int:
    cases = cases_of(calls, root, backend, engine)
    seed = int(os.environ.get("CQSTORE_SEED", "1"))
    random.Random(seed).shuffle(cases)
    tried = struck = 0
    for case in cases[:most]:
        try:
            struck += try_case(calls, root, backend, engine, case)
        except BaseException as exc:
            exc.add_note(f"{case} at {calls.struck}")
            raise
        tried += 1
    print(f"\n{backend} {engine.value}: {tried} of {len(cases)} cases, {struck} struck")  # noqa: T201
    assert struck > 0.9 * tried > 0
    return tried


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NthCall:
    return NthCall(monkeypatch, tmp_path / "store")


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_fault_in_one_call_loses_nothing(
    calls: NthCall, tmp_path: Path, backend: str, engine: RocksDBEngine
) -> None:
    assert try_cases(calls, tmp_path / "store", backend, engine, SAMPLE)


@pytest.mark.long
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_fault_in_any_call_loses_nothing(
    calls: NthCall, tmp_path: Path, backend: str, engine: RocksDBEngine
) -> None:
    assert try_cases(calls, tmp_path / "store", backend, engine, sys.maxsize)


@pytest.mark.parametrize("backend", backend_names())
def test_writes_of_which_a_part_is_taken_are_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    told, calls = Told(), NthCall(monkeypatch, tmp_path)
    calls.all_short = True
    run(tmp_path / "store", backend, RocksDBEngine.AUTO, told)
    assert calls.counts["pwrite"] + calls.counts["write"] > 50
    copy_store(tmp_path / "store", tmp_path / "copy")
    calls.heal()
    for name in ("store", "copy"):
        with MessageStore.open(tmp_path / name, CONFIG, backend=backend) as store:
            told.check(store)
            assert len(told.stored) == told.asked


@pytest.mark.parametrize("backend", backend_names())
def test_a_store_whose_marker_cannot_be_removed_is_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    told, faults = Told(), Faults(monkeypatch)
    store = MessageStore.open(tmp_path, CONFIG, backend=backend, housekeeping=False)
    told.work(store)
    faults.fail("unlink", EIO, "/abort", times=1)
    with pytest.raises(StoreIOError, match="abort"):
        store.close()
    assert faults.refused == 1
    with MessageStore.open(tmp_path, CONFIG, backend=backend) as store:
        assert not store.report.last_exit_ok
        told.check(store)
