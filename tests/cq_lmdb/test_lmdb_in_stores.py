"""Whole stores with LMDB queues: opened, rebuilt, moved to another state, copied, compared."""

import shutil
import threading
from pathlib import Path

import lmdb
import pytest

from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.backup import back_up
from cqstore.store.service.offline.mode import StoreMode, change_mode, possible_steps
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.settings.config import StoreConfig
from tests.ab.made_store import make_varied_store
from tests.ab.running import compare
from tests.kit.served import served

SMALL = StoreConfig(mapped_file_size_commit_log=1 << 16)
FOLDER = "consumequeue_lmdb"


def put(root: Path, count: int, backend: str | None = None, topic: str = "t") -> None:
    with MessageStore.open(root, SMALL, backend=backend, housekeeping=False) as store:
        for number in range(count):
            assert store.put_message(Message(topic, b"%d" % number, number % 3, {"TAGS": "a"})).ok


def parts(root: Path) -> list[str]:
    with MessageStore.open(root, read_only=True) as store:
        return [each.name for each in components_of(store).queues.backends()]


def test_it_serves_what_files_serve_and_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    for name in ("file", "lmdb"):
        put(tmp_path / name, 300, backend=name)
    before = served(tmp_path / "lmdb")
    assert before == served(tmp_path / "file")
    root = tmp_path / "lmdb"
    assert parts(root) == ["lmdb"]
    put(root, 1)  # the store's own backend is opened
    with MessageStore.open(root, StoreConfig.from_mapping({"storeType": "LMDB"})) as store:
        assert store.max_offset("t", 0) == 101
        assert list(store.topics()) == ["t"]
        assert [each for each in store.check() if each.damage] == []
    after = served(root)
    with lmdb.open(str(root / FOLDER), max_dbs=2) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"units", txn), delete=False)
    options = RecoveryOptions(rebuild=Rebuild.QUEUES)
    with MessageStore.open(root, recovery=options, housekeeping=False) as store:
        assert [each for each in store.check() if each.damage] == []
    assert served(root) == after


@pytest.mark.slow
@pytest.mark.parametrize("beside", ["file", "rocksdb"])
def test_a_store_changes_to_it_over_double_write_and_back(tmp_path: Path, beside: str) -> None:
    root = tmp_path / "store"
    put(root, 30, backend=beside)
    before = served(root)
    names = [beside, f"double-write-{beside}+lmdb", f"double-write-lmdb+{beside}", "lmdb"]
    for name in [*names[1:], *reversed(names[:-1])]:
        assert name in {step.to for step in possible_steps(root) if step.is_possible}
        assert change_mode(root, StoreMode(name)).after == name
        put(root, 3, topic="later")
        assert parts(root) == list(StoreMode(name).backends)
        assert served(root).items() >= before.items()


@pytest.mark.parametrize("is_open", [True, False])
def test_a_backup_has_one_commit(tmp_path: Path, *, is_open: bool) -> None:
    """A file that is copied block by block during commits would have pages of several."""
    root = tmp_path / "store"
    put(root, 300, backend="lmdb")
    if not is_open:
        back_up(root, tmp_path / "backup", SMALL)
        assert served(tmp_path / "backup") == served(root)
        return
    ended = threading.Event()
    with MessageStore.open(root, SMALL, housekeeping=False) as store:

        def write() -> None:
            while not ended.is_set():
                store.put_messages([Message(f"t{at}", b"x") for at in range(50)])
                store.flush()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(5):
                back_up(root, tmp_path / str(number), SMALL)
        finally:
            ended.set()
            writer.join()
    key = QueueKey("t", 0)
    expected = served(root)[key]
    for number in range(5):
        with MessageStore.open(tmp_path / str(number), housekeeping=False) as store:
            assert [each for each in store.check() if each.damage] == []
        assert served(tmp_path / str(number))[key] == expected


def test_its_log_is_known_without_an_open_store(tmp_path: Path) -> None:
    put(tmp_path / "store", 9, backend="lmdb")
    kind = backend("lmdb")
    with MessageStore.open(tmp_path / "store", read_only=True) as store:
        context, end = (
            components_of(store).queues.context,
            components_of(store).log.max_phy_offset(),
        )
    assert kind.written_to(context) == end
    assert kind.own_files(StorePaths(tmp_path / "store"))
    shutil.rmtree(tmp_path / "store" / FOLDER)
    assert kind.written_to(context) == 0
    assert kind.own_files(StorePaths(tmp_path / "store")) == []


@pytest.mark.long
def test_it_is_a_side_of_a_comparison(tmp_path: Path) -> None:
    root = tmp_path / "store"
    make_varied_store(root, 400)
    sides = ["file", "rocksdb", "lmdb"]
    found = compare(root, "random-pull", "dispatch", "expiry", "topic-delete", sides=sides)
    assert found.proof is not None
    assert [side.name for side in found.sides][:3] == sides
    assert [each.name for each in found.workloads if each.answers.different] == []
    assert all(side.footprint and side.footprint.disk_bytes for side in found.sides)
