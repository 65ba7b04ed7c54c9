"""Single cases of what a power cut leaves, each of which once was answered wrongly."""

import ctypes
import errno
import os
import random
from pathlib import Path
from unittest import mock

import pytest

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.store.errors import CorruptionError, RefusedStoreError
from cqstore.store.files import sync_below, sync_file_system
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.expired_queues import ExpiredQueues
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.paths import StorePaths
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.recovering.find_log_end import lacks_a_sector
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.descriptors import descriptors_of
from tests.kit.power_cut import SECTOR, Disk

CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=2000, max_index_num=50,
    max_hash_slot_num=50, flush_disk_type=FlushDiskType.SYNC_FLUSH,
)  # fmt: skip
FIRST_LOG = Path("commitlog", "0" * 20)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store of ten records that counts as crashed and of which nothing is known to be on disk."""
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        for number in range(10):
            message = Message("t", b"%d" % number * 300, 0, {"KEYS": f"k{number}", "TAGS": "x"})
            assert store.put_message(message).ok
    forget(root)
    return root


def forget(root: Path) -> None:
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    (root / "cqstore" / "synced").unlink()


def change(path: Path, at: int, data: bytes) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:at] + data + content[at + len(data) :])


def kill(store: MessageStore) -> None:
    """Let go of a file store as the end of its process would: nothing is flushed."""
    components_of(store).stop()
    lock = components_of(store).lock
    assert lock is not None
    lock.release()


def numbers(root: Path) -> list[int]:
    with MessageStore.open(root, CONFIG) as store:
        assert [finding for finding in store.check() if finding.damage] == []
        log = components_of(store).log
        found = [log.message(record.phy_offset) for record in log.scan(0)]
        assert store.max_offset("t", 0) == len(found)
        return [int(message.body[:1]) for message in found]


def second_record(root: Path) -> int:
    return int.from_bytes((root / FIRST_LOG).read_bytes()[:4], "big")


def test_a_page_that_was_not_written_ends_the_log(root: Path) -> None:
    change(root / FIRST_LOG, SECTOR, bytes(SECTOR))
    assert second_record(root) < SECTOR < 2 * second_record(root)
    assert numbers(root) == [0]


def test_a_page_that_the_checkpoint_vouches_for_is_damage(root: Path) -> None:
    change(root / FIRST_LOG, SECTOR, bytes(SECTOR))
    checkpoint = StoreCheckpoint(root / "checkpoint")
    checkpoint.update(confirm_phy_offset=second_record(root))
    checkpoint.flush()
    with pytest.raises(RefusedStoreError, match="a valid record follows at "):
        MessageStore.open(root, CONFIG)


def test_bytes_that_no_power_cut_leaves_are_damage(root: Path) -> None:
    change(root / FIRST_LOG, SECTOR, b"?" * 100)
    with pytest.raises(RefusedStoreError, match="a valid record follows at "):
        MessageStore.open(root, CONFIG)


def test_a_record_lacks_a_sector_where_all_of_one_is_zero_from_its_start_on(
    tmp_path: Path,
) -> None:
    with MessageStore.open(tmp_path, CONFIG, backend="file", housekeeping=False) as store:
        for size in (1, 300, 600, 1500, 2000, 400, 1200, 2500, 1700, 1400, 700):
            assert store.put_message(Message("t", b"x" * size, 0, {"TAGS": "x"})).ok
        log = components_of(store).log
        ends = [(one.phy_offset, one.phy_offset + one.size) for one in log.scan(0)]
        assert ends[-1][1] > 13000
        assert not lacks_a_sector(log, 16384)  # it starts in no file
        with (tmp_path / FIRST_LOG).open("r+b", buffering=0) as file:
            whole = file.read()
            for start, end in ends:
                for sector in range(start // SECTOR - 1, (end - 1) // SECTOR + 2):
                    first, last = max(sector * SECTOR, 0), (sector + 1) * SECTOR
                    own = range(max(first, start), min(last, end))
                    for there in (None, own.start, last - 1):
                        lost = bytearray(last - first)
                        if there is not None and first <= there < last:
                            lost[there - first] = 1
                        os.pwrite(file.fileno(), lost, first)
                        lacks = bool(own) and not any(lost[own.start - first :])
                        assert lacks_a_sector(log, start) == lacks, (start, end, sector, there)
                        os.pwrite(file.fileno(), whole[first:last], first)


def test_a_blank_record_that_lost_its_second_half_ends_the_log(tmp_path: Path) -> None:
    root, half = tmp_path / "store", 31 * SECTOR
    with MessageStore.open(root, CONFIG, backend="file") as store:
        first = store.put_message(Message("t", b"0" * 100)).appended
        assert first is not None
        rest = half - 4 - first.size - (first.size - 100)
        assert store.put_message(Message("t", b"1" * rest)).ok
        assert store.max_phy_offset() == half - 4
        assert store.put_message(Message("t", b"2" * 1000)).phy_offset == 16384
    forget(root)
    change(root / FIRST_LOG, half, bytes(SECTOR))
    assert numbers(root) == [0, 1]


def test_a_record_that_lost_the_end_of_its_properties_was_never_written(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        store.put_message(Message("t", b"0", 0, {"KEYS": "k" * 700}))
        store.put_message(Message("t", b"1"))
    forget(root)
    change(root / FIRST_LOG, SECTOR, bytes(second_record(root) - SECTOR))
    with pytest.raises(RefusedStoreError):  # bytes of the next record lie in the same sector
        MessageStore.open(root, CONFIG)
    change(root / FIRST_LOG, SECTOR, bytes(2 * SECTOR))
    assert numbers(root) == []


def test_the_last_unit_is_written_again(root: Path) -> None:
    path = root / "consumequeue" / "t" / "0" / ("0" * 20)
    at = 4 * FILE_UNIT.size
    unit = FILE_UNIT.unpack_from(path.read_bytes(), at)
    assert unit.tags_code == ord("x")
    torn = FILE_UNIT.pack(unit._replace(tags_code=0))
    change(path, at, torn + bytes(5 * FILE_UNIT.size))
    assert numbers(root) == list(range(10))
    assert FILE_UNIT.unpack_from(path.read_bytes(), at) == unit


def test_a_journal_goes_on_behind_its_torn_end(root: Path) -> None:
    paths = StorePaths(root)
    for tail in (b"1234", b"1234\0\0\0\n00000000 {}\n"):
        journal, ends = DeletedTopics(paths.deleted_topics), ExpiredQueues(paths.expired_queues)
        journal.begin(["none"], 0)
        ends.add([(QueueKey("gone", 3), 7)])
        for path in (paths.deleted_topics, paths.expired_queues):
            with path.open("ab") as file:
                file.write(tail)
        (root / "abort").touch()
        with MessageStore.open(root, CONFIG) as store:
            store.delete_topic("other")
        assert ends.ends() == {("gone", 3): 7}
        DeletedTopics(paths.deleted_topics).load()


def test_a_damaged_line_of_a_journal_is_no_torn_end(root: Path) -> None:
    path = StorePaths(root).deleted_topics
    journal = DeletedTopics(path)
    journal.begin(["a"], 0)
    journal.finish(["a"])
    change(path, 5, b"?")
    with pytest.raises(CorruptionError, match="a line of the journal is damaged"):
        MessageStore.open(root, CONFIG)


def test_a_queue_goes_on_where_it_ended_though_older_units_are_left(root: Path) -> None:
    with MessageStore.open(root, CONFIG) as store:
        while store.max_phy_offset() < 2 * 16384:
            store.put_message(Message("other", b"x" * 1000))
        assert store.delete_expired_files(16384).log_files == 1
    assert ExpiredQueues(StorePaths(root).expired_queues).ends()[QueueKey("t", 0)] == 10
    change(root / "consumequeue" / "t" / "0" / ("0" * 20), 3 * 20, bytes(7 * 20))
    forget(root)
    with MessageStore.open(root, CONFIG) as store:
        assert (store.min_offset("t", 0), store.max_offset("t", 0)) == (10, 10)


def test_every_name_that_leads_to_a_message_is_durable(tmp_path: Path) -> None:
    disk = Disk(tmp_path, random.Random(0), dict, limit=1)
    with (
        disk.watching(),
        MessageStore.open(tmp_path / "a" / "b", CONFIG, backend="file") as store,
    ):
        store.put_message(Message("t", b"x", 0, {"KEYS": "k"}))
        log = disk.files("a")["b/commitlog/" + "0" * 20]
        assert log.durable == log.now
        assert disk.has_durable_name(log)
        store.delete_topic("t")
        assert disk.has_durable_name(disk.files("a")["b/cqstore/deleted-topics"])
        store.flush()
        (index,) = (node for name, node in disk.files("a").items() if "index/" in name)
        assert disk.has_durable_name(index)


@pytest.mark.parametrize("flush", FlushDiskType)
def test_what_a_killed_process_wrote_is_on_disk_after_a_flush(
    tmp_path: Path, flush: FlushDiskType
) -> None:
    config = CONFIG.model_copy(
        update={"flush_disk_type": flush, "flush_interval_commit_log": 1 << 30}
    )
    root = tmp_path / "store"
    root.mkdir()
    disk = Disk(root, random.Random(0), dict, limit=1)
    with disk.watching():
        killed = MessageStore.open(root, config, backend="file")
        for number in range(60):
            message = Message(f"t{number % 3}", b"x" * 1000, 0, {"KEYS": f"k{number}"})
            assert killed.put_message(message).ok
        killed.get_message("t0", 0, 0)  # units reach the files
        kill(killed)
        with MessageStore.open(root, config) as store:
            disk.look()
            assert len(disk.files("commitlog")) > 3
            for folder in ("commitlog", "consumequeue"):
                for name, node in disk.files(folder).items():
                    assert disk.has_durable_name(node), name
                    assert node.durable == node.now, name
            store.flush()


def test_without_syncfs_what_was_found_is_synced_file_by_file(root: Path) -> None:
    disk = Disk(root, random.Random(0), dict, limit=1)
    with disk.watching(), mock.patch("cqstore.store.files.find_syncfs", return_value=None):
        change(root / "consumequeue" / "t" / "0" / ("0" * 20), 100, b"\0")
        (root / "consumequeue" / "new").mkdir()
        MessageStore.open(root, CONFIG).close()
        for folder in ("commitlog", "consumequeue"):
            assert all(node.durable == node.now for node in disk.files(folder).values())
        assert "new" in disk.top.live["consumequeue"].names
    (root / "a link").symlink_to("nowhere")
    os.mkfifo(root / "a pipe")
    sync_below([root, root / "none"])


def test_a_tree_is_synced_name_by_name_and_let_go(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    calls = CallOrder(tmp_path)
    with calls.watching(), mock.patch("cqstore.store.files.find_syncfs", return_value=None):
        sync_below([tmp_path])
    assert descriptors_of(tmp_path) == []
    assert {*calls.made} == {("sync", name) for name in (".", "a", "b", "b/c", "b/d")}
    ctypes.set_errno(errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)) as raised:
        sync_file_system(lambda _: -1, 0)
    assert raised.value.errno == errno.EIO


def test_log_files_go_one_by_one_and_never_before_the_rest_is_durable(tmp_path: Path) -> None:
    config = CONFIG.model_copy(
        update={"flush_disk_type": FlushDiskType.ASYNC_FLUSH, "flush_interval_commit_log": 1 << 30}
    )
    disk = Disk(tmp_path, random.Random(0), dict, limit=1)
    with disk.watching(), MessageStore.open(tmp_path, config, backend="file") as store:
        while store.max_phy_offset() < 5 * 16384:
            store.put_message(Message("t", b"x" * 1000))
        going: list[int] = []
        disk.at_each = lambda disk: going.append(missing(disk))
        store.delete_expired_files(4 * 16384)
    assert max(going) == 1


def missing(disk: Disk) -> int:
    """Return how many log files have gone that may come back; the others must be durable."""
    folder = disk.top.live["commitlog"]
    gone = folder.names.keys() - folder.live.keys()
    if gone:
        assert all(node.durable == node.now for node in folder.live.values())
    return len(gone)


def test_one_thread_at_a_time_writes_the_checkpoint(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[bool] = []
    original = StoreCheckpoint.flush

    def flush(checkpoint: StoreCheckpoint) -> None:
        held.append(components_of(store).flush_all._lock.is_mine())
        original(checkpoint)

    monkeypatch.setattr(StoreCheckpoint, "flush", flush)
    with MessageStore.open(root, CONFIG) as store:
        store.flush()
    assert held == [True, True]
