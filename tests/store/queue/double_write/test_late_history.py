"""A backend whose history begins late: RocketMQ switched double write on without it.

Its ends and its checkpoint say that nothing is missing. The log fills what is lacking, once.
"""

import logging
import os
import shutil
from pathlib import Path

import pytest

from cqstore.store.errors import ConsumeQueueError, RefusedStoreError
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message, SysFlag
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from tests.kit.double_write import StoredOffsets, backend_state, config, open_store, refuse
from tests.kit.tree import unchanged
from tests.store.comparing.test_comparison import Database

EACH = 30


@pytest.fixture
def reported() -> StoredOffsets:
    return StoredOffsets()


@pytest.fixture
def root(tmp_path: Path, reported: StoredOffsets) -> Path:
    """Both backends whole, as RocketMQ leaves them: no line of ours."""
    root = tmp_path / "store"
    with open_store(root) as store:
        reported.put(store, 5 * EACH)
    foreign(root)
    return root


def foreign(root: Path) -> None:
    """Take away what only we write, and write ``lock`` as RocketMQ does at each start."""
    shutil.rmtree(root / "cqstore")
    stamp = (root / "lock").stat().st_mtime_ns + 1_000_000
    os.utime(root / "lock", ns=(stamp, stamp))


def lose_history(root: Path, name: str) -> None:
    """Let queues 0 to 3 of one backend begin late; of RocksDB queue 4 is lost as a whole."""
    if name == "rocksdb":
        with Database(root) as database:
            for queue_id in range(4):
                database.lose(queue_id, *range(25))
            database.lose(4, *range(EACH))
        return
    for queue_id in range(4):
        (root / "consumequeue" / "t" / str(queue_id) / f"{0:020d}").unlink()


@pytest.mark.parametrize("read", ["file", "rocksdb"])
@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_the_log_fills_what_is_lacking(
    root: Path, reported: StoredOffsets, caplog: pytest.LogCaptureFixture, name: str, read: str
) -> None:
    lose_history(root, name)
    with caplog.at_level(logging.WARNING), open_store(root, read) as store:
        assert f"of the {name} queues lack {4 * 25 + EACH if name == 'rocksdb' else 40} units" in (
            caplog.text
        )
        assert store.report.watermarks[name] == 0
        assert store.report.restarts == []
        assert store.detached_backends() == {}
        assert store.verify().is_clean
        assert store.min_offset("t", 0) == 0
        assert store.get_message("t", 4, 0, 32).queue_offsets == list(range(10))
        reported.put(store, 5)
    assert backend_state(root).lagging == {}
    reported.check(root)


def test_it_is_looked_for_once_and_again_after_somebody_else(
    root: Path, reported: StoredOffsets
) -> None:
    """In RocksDB: that files were lost is noticed in another way, at any time."""
    with open_store(root) as store:
        assert store.report.dispatched_units == 0
    alike = backend_state(root).alike
    assert alike == (root / "lock").stat().st_mtime_ns
    lose_history(root, "rocksdb")
    with open_store(root) as store:
        assert store.report.dispatched_units == 0, "no other program has opened it: not looked for"
    os.utime(root / "lock", ns=(alike + 1_000_000,) * 2)
    with open_store(root) as store:
        assert store.report.dispatched_units == 5 * EACH
    assert backend_state(root).alike == alike + 1_000_000
    reported.check(root)


@pytest.mark.parametrize("name", ["file", "rocksdb"])
def test_cut_short_it_is_filled_by_the_next_open(
    root: Path, reported: StoredOffsets, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    lose_history(root, name)
    with monkeypatch.context() as patched:
        refuse(patched, name, "put_batch")
        with pytest.raises(ConsumeQueueError):
            open_store(root, name)
    assert backend_state(root).lagging == {name: 0}
    with open_store(root) as store:
        assert store.verify().is_clean
    reported.check(root)


def test_a_queue_that_rocketmq_began_anew_at_its_end_is_filled(
    root: Path, reported: StoredOffsets
) -> None:
    """As its start with double write does it: an end, and no unit."""
    with Database(root) as database:
        for queue_id in range(5):
            database.lose(queue_id, *range(EACH))
    with open_store(root, "rocksdb") as store:
        assert store.min_offset("t", 1) == 0
        assert store.verify().is_clean
    reported.check(root)


def test_what_lacks_history_is_not_served_read_only(root: Path) -> None:
    lose_history(root, "rocksdb")
    with unchanged(root):
        with pytest.raises(RefusedStoreError, match=r"lack units .*cqstore recover"):
            MessageStore.open(root, config("rocksdb"), read_only=True)
        with MessageStore.open(root, config("rocksdb"), read_only=True, backend="file") as store:
            assert store.min_offset("t", 0) == 0


@pytest.mark.parametrize("deleted_in", [["file", "rocksdb"], ["rocksdb"]])
def test_a_topic_that_rocketmq_deleted_does_not_come_back(
    root: Path, reported: StoredOffsets, deleted_in: list[str]
) -> None:
    """No journal tells of it; where one backend has it still, nothing tells that it was deleted."""
    with open_store(root) as store:
        reported.put(store, 20, "gone")
        for part in components_of(store).queues.backends():
            if part.name in deleted_in:
                part.delete_topics(["gone"])
        reported.put(store, 5)
        # The log goes on behind what the queues have of it: part of a batch is new to the files.
        prepared = Message("t", b"", 0, sys_flag=SysFlag.TRANSACTION_PREPARED)
        assert store.put_message(prepared).ok
    foreign(root)
    lose_history(root, "rocksdb")
    with open_store(root) as store:
        assert store.verify().is_clean
        assert ("gone" in list(store.topics())) is (deleted_in == ["rocksdb"])
    for key in [key for key in reported.phys if key.topic == "gone"]:
        if deleted_in != ["rocksdb"]:
            del reported.phys[key]
    reported.check(root)


def test_queues_that_have_expired_in_part_are_no_lack(tmp_path: Path) -> None:
    root, reported = tmp_path / "store", StoredOffsets()
    with open_store(root) as store:
        reported.put(store, 20, "expires")
        reported.put(store, 300)
        ends = components_of(store).log.files.files()
        assert store.delete_expired_files(ends[-2].file_from_offset).log_files == 1
    foreign(root)
    with open_store(root) as store:
        assert store.report.watermarks["rocksdb"] > 0
        assert store.report.dispatched_units == 0
        assert store.max_offset(*QueueKey("expires", 0)) == 4
        assert store.verify().is_clean


def test_a_part_that_proves_to_lack_units_is_built_anew(
    root: Path, reported: StoredOffsets, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap shows that what it said of itself is not so: from its line on it would show again."""
    with open_store(root) as store:
        components_of(store).queues.backends()[1].truncate_dirty(
            reported.phys[QueueKey("t", 0)][10]
        )
        reported.put(store, 5)
        assert list(store.detached_backends()) == ["rocksdb"]
    assert backend_state(root).lagging == {"rocksdb": 0}
    with open_store(root) as store:
        assert store.verify().is_clean
    reported.check(root)
