"""``cqstore check --repair``: says what it would do, mends a copy, loses nothing unasked."""

from pathlib import Path

import pytest

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import queue_prefix, unit_key
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.index import geometry
from cqstore.store.index.layout import IndexGeometry
from cqstore.store.queue.backends import backend_names
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.offline.store_copy import copy_store
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import cqstore
from tests.kit.tree import tree_digest, unchanged

CONFIG = StoreConfig(
    mapped_file_size_commit_log=65536, mapped_file_size_consume_queue=400, max_hash_slot_num=50,
    max_index_num=100,
)  # fmt: skip


@pytest.fixture(params=backend_names())
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with MessageStore.open(tmp_path / "s", CONFIG, backend=request.param) as store:
        for number in range(300):
            assert store.put_message(Message("t", b"x" * 300, number % 3, {"KEYS": "k"})).ok
    return tmp_path / "s"


def ends(root: Path) -> list[int]:
    with MessageStore.open(root, read_only=True) as store:
        return [store.max_offset("t", queue_id) for queue_id in range(3)]


def spoil_queue(root: Path) -> None:
    """Queue 1 loses units; in RocksDB by way of the store itself."""
    files = sorted((root / "consumequeue" / "t" / "1").glob("*"))
    if files:
        files[1].write_bytes(bytes(range(200)) * 2)
        return
    prefix = queue_prefix("t", 1)
    with MessageStore.open(root) as store:
        queues = components_of(store).queues
        assert isinstance(queues, RocksDBConsumeQueueStore)
        span = (Family.DEFAULT, unit_key(prefix, 20), unit_key(prefix, 40))
        queues.engine.write(EngineBatch(delete_ranges=[span]))


def spoil_record(root: Path) -> int:
    """Spoil a record in the middle of the first log file; return where it starts."""
    with MessageStore.open(root, read_only=True) as store:
        at = [record.phy_offset for record in components_of(store).log.scan(0)][50]
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(at + 100)
        file.write(b"\xff" * 20)
    return at


def test_a_whole_store_asks_for_nothing(root: Path) -> None:
    with unchanged(root):
        assert "0 damaged" in cqstore("check", root, "--repair").stderr
    assert not root.with_name("s.repaired").exists()


def test_a_queue_is_mended_in_a_copy_and_the_store_stays_as_it_was(root: Path) -> None:
    spoil_queue(root)
    with unchanged(root):
        done = cqstore("check", root, "--repair")
        assert "rebuild queue 1 of topic 't'" in done.stderr
    copy = root.with_name("s.repaired")
    assert ends(copy) == [100] * 3
    assert cqstore("check", copy).stderr.endswith("0 damaged\n")
    refused = cqstore("check", root, "--repair", code=2)
    assert "the path of the copy already exists" in refused.stderr
    cqstore("check", root, code=1)


def test_in_place_the_store_itself_is_mended(root: Path) -> None:
    spoil_queue(root)
    cqstore("check", root, "--repair", "--in-place")
    assert ends(root) == [100] * 3
    cqstore("check", root)
    assert not root.with_name("s.repaired").exists()


def test_a_broken_index_is_built_anew(root: Path, tmp_path: Path) -> None:
    index = sorted((root / "index").iterdir())[1]
    data = bytearray(index.read_bytes())
    data[40:240] = b"\x7f" * 200  # slots that lead nowhere
    index.write_bytes(data)
    done = cqstore("check", root, "--repair", "--copy-to", tmp_path / "copy")
    assert "rebuild the index" in done.stderr
    with MessageStore.open(tmp_path / "copy", read_only=True) as store:
        assert len(store.query_message("t", "k", 64)) == 64


def test_an_index_whose_numbers_are_not_known_is_told(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be whole."""
    several = {IndexGeometry(50, 100), IndexGeometry(55, 99)}
    monkeypatch.setattr(geometry, "_geometries", lambda *_: several)
    with unchanged(root):
        with MessageStore.open(root, read_only=True) as store:
            (found,) = store.check()
        assert not found.damage
        assert found.path == str(min((root / "index").iterdir()))
        assert "queries by key find nothing" in found.problem
        assert "Set maxHashSlotNum and maxIndexNum" in found.problem


def test_records_are_given_up_only_when_told_and_counted_before(root: Path) -> None:
    at = spoil_record(root)
    before = tree_digest(root)
    refused = cqstore("check", root, "--repair", "--in-place", code=2)
    assert f"cut the log at {at}" in refused.stderr
    assert "249 valid records" in refused.stderr
    assert tree_digest(root) == before
    cqstore("check", root, "--repair", "--in-place", "--cut-at", at + 1, code=2)
    assert tree_digest(root) == before
    cqstore("check", root, "--repair", "--in-place", "--cut-at", at)
    assert ends(root) == [17, 17, 16]
    cqstore("check", root)


def test_many_queues_are_built_in_one_pass(tmp_path: Path) -> None:
    root = tmp_path / "s"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(60):
            assert store.put_message(Message("t", b"x", number % 20)).ok
    for path in (root / "consumequeue" / "t").glob("*/*"):
        path.write_bytes(b"\x11" * 400)
    done = cqstore("check", root, "--repair")
    assert "rebuild all queues (20 are damaged)" in done.stderr


def test_a_store_that_is_open_is_not_copied(root: Path, tmp_path: Path) -> None:
    spoil_queue(root)
    with MessageStore.open(root):
        done = cqstore("check", root, "--repair", code=2)
    assert "has the store open" in done.stderr
    assert not root.with_name("s.repaired").exists()
    copy_store(root, tmp_path / "copy")
    assert tree_digest(tmp_path / "copy") == tree_digest(root)
    sparse = next((root / "commitlog").iterdir())
    copied = tmp_path / "copy" / "commitlog" / sparse.name
    assert copied.stat().st_mtime_ns == sparse.stat().st_mtime_ns
    assert copied.stat().st_blocks <= sparse.stat().st_blocks


def test_queues_are_rebuilt_in_the_other_backend_and_back(root: Path) -> None:
    for name in ("rocksdb", "file"):
        done = cqstore("rebuild", root, "--backend", name)
        assert "the previous files are in" in done.stderr
        assert ends(root) == [100] * 3
        assert name in cqstore("info", root).stdout
    cqstore("rebuild", root, "--index")
    cqstore("rebuild", root, "--topic", "t", "--queue-id", 1)
    assert ends(root) == [100] * 3
    cqstore("check", root)


@pytest.mark.parametrize(
    "options",
    [
        ["--backend", "nonsense"],
        ["--queue-id", 1],
        ["--topic", "t", "--index"],
        ["--cut-at", 7],
    ],
)
def test_a_rebuild_that_makes_no_sense_changes_nothing(root: Path, options: list[object]) -> None:
    with unchanged(root / "consumequeue"):
        assert "Traceback" not in cqstore("rebuild", root, *options, code=2).stderr
    assert not (root / "cqstore" / "replaced").exists()
    assert ends(root) == [100] * 3


@pytest.mark.disk
def test_the_index_of_a_store_without_keys_is_rebuilt_to_nothing(tmp_path: Path) -> None:
    with MessageStore.open(tmp_path / "s", backend="file") as store:
        assert store.put_message(Message("t", b"x")).ok
    assert cqstore("rebuild", tmp_path / "s", "--index").stderr == ""
