"""A process is killed at random instants: whatever had returned is there, once and in order."""

import random
from pathlib import Path

import pytest

from cqstore.store.log.log_files import log_file_paths
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.engines import ENGINES
from tests.kit.installing import install_lmdb
from tests.kit.killed_child import config_of, followed, start
from tests.kit.long_too import long_too
from tests.kit.promised import Promises, settle
from tests.kit.two_paths import FOLDERS, in_two_paths

STORES = [
    ("file", RocksDBEngine.AUTO),
    *[("rocksdb", engine) for engine in ENGINES],
    ("lmdb", RocksDBEngine.AUTO),
]
TWO_PATHS = [("file", RocksDBEngine.AUTO), ("rocksdb", RocksDBEngine.AUTO)]
MAX_LINES = 200
NUMBERS = 1_000_000
"""Messages that one process may put; the next one counts on from there."""

SEEDS = [range(1, 3), *long_too([range(3, 6), *(range(at, at + 7) for at in range(100, 170, 7))])]


def die_again_and_again(
    root: Path, backend: str, engine: RocksDBEngine, seeds: range, *, two_paths: bool = False
) -> None:
    """Kill a process a seed, all of them on one store; open and compare each time.

    The process is killed as soon as it has said so many lines, wherever it is by then: in the
    middle of whatever comes next. One in ten is killed while it opens the store.
    """
    promises, config = Promises(), config_of(engine)
    config = in_two_paths(root, config) if two_paths else config
    for seed in seeds:
        draw = random.Random(seed)
        lines = 1 if draw.randrange(10) == 0 else draw.randrange(2, MAX_LINES)
        child = start(root, backend, engine, seed * NUMBERS, two_paths=two_paths)
        assert child.stdout is not None
        with child:
            for _ in range(lines):
                followed(promises, child.stdout.readline())
            child.kill()
            for line in child.stdout:
                followed(promises, line)
        assert child.returncode == -9
        with MessageStore.open(root, config, backend=backend) as store:
            promises = settle(store, promises)


@pytest.fixture(autouse=True)
def _lmdb(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    install_lmdb(tmp_path_factory.mktemp("installed"), monkeypatch)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_nothing_that_returned_is_lost(
    tmp_path: Path, backend: str, engine: RocksDBEngine, seeds: range
) -> None:
    die_again_and_again(tmp_path, backend, engine, seeds)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("backend", "engine"), TWO_PATHS)
def test_nothing_of_a_log_in_two_paths_is_lost(
    tmp_path: Path, backend: str, engine: RocksDBEngine, seeds: range
) -> None:
    die_again_and_again(tmp_path, backend, engine, seeds, two_paths=True)
    for name in FOLDERS:
        assert log_file_paths([tmp_path / name])
