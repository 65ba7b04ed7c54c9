"""Locks, refusals, recovery: what opening does, and what it must not do."""

import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from cqstore.store.errors import (
    CorruptionError,
    ReadOnlyStoreError,
    RefusedStoreError,
    StoreClosedError,
    StoreConfigError,
    StoreFailedError,
    StoreIOError,
    StoreLockedError,
)
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend as backend_class
from cqstore.store.queue.backends import backend_names
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching import replay
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.opening.options import RecoveryOptions
from cqstore.store.service.recovering.queue_rebuild import QueueRebuild
from cqstore.store.service.results import GetMessageStatus
from cqstore.store.settings.config import StoreConfig
from tests.kit.call_order import CallOrder
from tests.kit.descriptors import descriptors_of
from tests.kit.golden import load_dump
from tests.kit.tree import tree_digest, unchanged
from tests.store.service.test_journals import line

Golden = Callable[[str], Path]
CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384,
    max_hash_slot_num=100, max_index_num=1000,
)  # fmt: skip


@pytest.fixture
def root(tmp_path: Path, backend: str) -> Path:
    """A cleanly closed store of 200 messages in two queues and several log files."""
    with MessageStore.open(tmp_path / "store", CONFIG, backend=backend) as store:
        for number in range(200):
            message = Message("t", b"%d " % number * 30, number % 2, {"KEYS": f"k{number}"})
            assert store.put_message(message).ok
    return tmp_path / "store"


def bodies(store: MessageStore, queue_id: int = 0) -> int:
    return store.max_offset("t", queue_id) - store.min_offset("t", queue_id)


def last_log_file(root: Path) -> Path:
    return max((root / "commitlog").iterdir())


# ---- locks


def test_one_process_opens_a_store_once(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other name").symlink_to(root)
    with MessageStore.open(root):
        for path in (root, tmp_path / "other name"):
            with pytest.raises(StoreLockedError):
                MessageStore.open(path)
    MessageStore.open(root).close()


def test_another_process_is_named(root: Path) -> None:
    code = "import sys; from cqstore import MessageStore; MessageStore.open(sys.argv[1])"
    with MessageStore.open(root):
        done = subprocess.run(
            [sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=False
        )
    assert "StoreLockedError" in done.stderr
    assert f"process {os.getpid()} has the store open" in done.stderr


def test_a_lock_that_could_not_be_taken_has_nothing_to_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is where the folder should be: the lock goes with its exception, and in silence."""
    (tmp_path / "file").touch()
    unreceived: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unreceived.append)
    said = ""
    try:
        StoreLock(StorePaths(tmp_path / "file" / "store"))
    except StoreIOError as exc:
        said = str(exc)
    gc.collect()
    assert "cannot create the folder of the store" in said
    assert unreceived == []


def test_a_closed_store_refuses_everything(root: Path) -> None:
    store = MessageStore.open(root)
    store.close()
    store.close()
    for call in (
        lambda: store.put_message(Message("t", b"")),
        lambda: store.get_message("t", 0, 0),
        lambda: store.message_by_offset(0),
        store.flush,
    ):
        with pytest.raises(StoreClosedError):
            call()


@pytest.mark.parametrize("crashed", [False, True])
def test_an_opening_without_a_put_leaves_the_words_of_the_checkpoint(
    root: Path, *, crashed: bool
) -> None:
    before = StoreCheckpoint(root / "checkpoint").fields
    if crashed:
        (root / "abort").touch()
    MessageStore.open(root).close()
    assert StoreCheckpoint(root / "checkpoint").fields == before


def test_a_read_only_store_takes_nothing_and_changes_nothing(root: Path) -> None:
    with unchanged(root), MessageStore.open(root, read_only=True) as store:
        assert bodies(store) == 100
        with pytest.raises(ReadOnlyStoreError):
            store.put_message(Message("t", b""))
        with pytest.raises(ReadOnlyStoreError):
            store.flush()


# ---- refusals


def refused(root: Path, config: StoreConfig | None = None) -> str:
    with unchanged(root), pytest.raises(RefusedStoreError) as caught:
        MessageStore.open(root, config)
    return str(caught.value)


def test_queues_without_a_log_are_refused(root: Path) -> None:
    shutil.rmtree(root / "commitlog")
    with pytest.raises(RefusedStoreError, match="no commit log"):
        MessageStore.open(root)
    assert (root / "consumequeue").exists()


@pytest.mark.parametrize("read_only", [True, False])
def test_a_file_is_no_store(root: Path, *, read_only: bool) -> None:
    log = next((root / "commitlog").iterdir())
    with unchanged(root):
        for place in (log, log / "below", log / "further" / "below"):
            with pytest.raises(RefusedStoreError, match="this is a file") as caught:
                MessageStore.open(place, read_only=read_only)
            assert caught.value.path == log


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_no_new_store_is_made_of_a_part_of_one(root: Path, name: str) -> None:
    before = tree_digest(root)
    with pytest.raises(RefusedStoreError, match=rf"part of a store\. Did you mean {root}\?"):
        MessageStore.open(root / name)
    assert tree_digest(root) == before
    with MessageStore.open(root) as store:
        assert bodies(store) == 100


def log_in(folder: Path) -> StoreConfig:
    return StoreConfig(store_path_commit_log=str(folder))


def test_a_log_elsewhere_must_be_there(root: Path, tmp_path: Path) -> None:
    for place, what in (
        (tmp_path / "none", "no such folder"),
        (root / "checkpoint", "this is a file"),
    ):
        with pytest.raises(RefusedStoreError, match=f"no commit log found: {what}") as caught:
            MessageStore.open(root, log_in(place), read_only=True)
        assert caught.value.path == place
    (tmp_path / "empty").mkdir()
    with pytest.raises(RefusedStoreError, match=f"no commit log in {tmp_path / 'empty'}: "):
        MessageStore.open(root, log_in(tmp_path / "empty"), read_only=True)


def test_a_log_elsewhere_is_read_only(root: Path, tmp_path: Path) -> None:
    (root / "commitlog").rename(tmp_path / "elsewhere")
    with MessageStore.open(root, log_in(tmp_path / "elsewhere"), read_only=True) as store:
        assert bodies(store) == 100
        assert [f for f in store.check() if f.damage] == []
    assert "elsewhere" in refused(root, log_in(tmp_path / "elsewhere"))


def test_a_log_over_several_paths_of_an_unnamed_store_is_read_only(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    last_log_file(root).rename(tmp_path / "second" / last_log_file(root).name)
    config = StoreConfig(store_path_commit_log=f"{root}/commitlog,{tmp_path}/second")
    assert f"in another folder, {tmp_path}/second, and storePathRootDir" in refused(root, config)
    with MessageStore.open(root, config, read_only=True) as store:
        assert [f for f in store.check() if f.damage] == []
        assert bodies(store) == 100


@pytest.mark.parametrize(
    ("mark", "word"),
    [("epochFileCheckpoint", "controller"), ("compaction/compactionLog/topic", "compacted"),
     ("dledger-n0", "DLedger")],
)  # fmt: skip
def test_stores_that_others_rule_are_read_only(root: Path, mark: str, word: str) -> None:
    (root / mark).mkdir(parents=True)
    assert word in refused(root)
    with MessageStore.open(root, read_only=True) as store:
        assert bodies(store) == 100


def test_an_empty_folder_of_compacted_topics_is_nobodys_rule(root: Path) -> None:
    (root / "compaction/compactionLog").mkdir(parents=True)
    with MessageStore.open(root) as store:
        assert store.put_message(Message("t", b"x")).ok


def test_a_slave_is_read_only(root: Path) -> None:
    assert "slave" in refused(root, StoreConfig.from_mapping({"brokerRole": "SLAVE"}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("brokerRole", "SYNC_MASTER"), ("inSyncReplicas", "2"), ("minInSyncReplicas", "2"),
     ("allAckInSyncStateSet", "true")],
)  # fmt: skip
def test_what_promises_replicas_is_not_opened_to_write(
    root: Path, tmp_path: Path, key: str, value: str
) -> None:
    """It was answered ``PUT_OK`` without a replica."""
    with unchanged(root):
        config = StoreConfig.from_mapping({key: value})
        for folder in (root, tmp_path / "new"):
            with pytest.raises(StoreConfigError, match=f"{key}={value} promises replicas"):
                MessageStore.open(folder, config)
    assert not (tmp_path / "new").exists()
    with MessageStore.open(root, config, read_only=True) as store:
        assert bodies(store) == 100


def test_two_databases_leave_two_readings(golden: Golden) -> None:
    root = golden("separate-defaultRocksDB")
    shutil.copytree(root / "consumequeue_rocksdb", root / "consumequeue", dirs_exist_ok=True)
    for read_only in (True, False):
        with pytest.raises(RefusedStoreError, match="consumequeue_rocksdb"):
            MessageStore.open(root, read_only=read_only)


def test_another_backend_than_the_one_on_disk_is_refused(root: Path, backend: str) -> None:
    other = "file" if backend == "rocksdb" else "rocksdb"
    with pytest.raises(RefusedStoreError, match=backend):
        MessageStore.open(root, backend=other)


def test_a_backend_that_nobody_offers_is_none(root: Path) -> None:
    with pytest.raises(StoreConfigError, match="nonsense"):
        MessageStore.open(root, backend="nonsense")


def test_a_file_of_another_size_is_named(root: Path) -> None:
    path = last_log_file(root)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="16383"):
        MessageStore.open(root)


# ---- holes


def test_a_hole_is_a_status_with_its_range_and_no_way_back_to_zero(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with MessageStore.open(root, CONFIG, backend="rocksdb") as store:
        store.put_messages([Message("t", b"%d" % number) for number in range(20)])
    families = {name: Options(raw_mode=True) for name in ("default", "offset")}
    database = Rdict(str(root / "consumequeue"), families["default"], column_families=families)
    for lost in (7, 8, 9):
        database.delete(b"\0\0\0\1\1t\1" + bytes(4) + b"\1" + lost.to_bytes(8, "big"))
    database.close()
    with MessageStore.open(root, read_only=True) as store:
        before = store.get_message("t", 0, 0, 32)
        assert (before.queue_offsets, before.next_begin_offset) == (list(range(7)), 7)
        at = store.get_message("t", 0, 7, 32)
        assert (at.status, at.hole) == (GetMessageStatus.OFFSET_FOUND_NULL, range(7, 10))
        behind = store.get_message("t", 0, at.next_begin_offset, 32)
        assert behind.queue_offsets == list(range(10, 20))
        problems = [finding.problem for finding in store.check() if finding.damage]
        assert any("7 to 9" in problem for problem in problems)


# ---- recovery


def crash(root: Path) -> None:
    """Make the store look as if its last writer had not closed it, nor ever flushed the log."""
    (root / "abort").write_text("1")
    for vouching in ("checkpoint", "cqstore/synced"):
        (root / vouching).unlink(missing_ok=True)


def test_the_log_is_not_written_to_where_a_clean_close_left_it(root: Path) -> None:
    before = last_log_file(root).stat()
    assert before.st_blocks > 0
    with MessageStore.open(root) as store:
        assert not store.report.needed
    after = last_log_file(root).stat()
    assert (after.st_mtime_ns, after.st_blocks) == (before.st_mtime_ns, before.st_blocks)


def test_what_lies_behind_a_clean_end_is_saved_and_zeroed(root: Path) -> None:
    with MessageStore.open(root, read_only=True) as store:
        end = store.max_phy_offset()
    path = last_log_file(root)
    data, at = path.read_bytes(), end - int(path.name)
    path.write_bytes(data[: at + 100] + b"left" + data[at + 104 :])
    with MessageStore.open(root) as store:
        assert store.report.dropped_bytes == 4
    assert path.read_bytes() == data


def test_a_torn_tail_is_saved_cut_and_zeroed(root: Path) -> None:
    crash(root)
    with MessageStore.open(root, read_only=True) as store:
        last = max(r.phy_offset for r in components_of(store).log.scan(0))
    path = last_log_file(root)
    data = bytearray(path.read_bytes())
    at = last - int(path.name)
    data[at + 60 :] = bytes(len(data) - at - 60)
    path.write_bytes(data)
    with MessageStore.open(root) as store:
        report = store.report
        assert (report.end_phy_offset, report.dropped_bytes > 0) == (last, True)
        assert bodies(store, 0) + bodies(store, 1) == 199
        assert store.put_message(Message("t", b"next", 1)).phy_offset == last
    (tail,) = report.saved
    assert tail.path.read_bytes() == bytes(data[at : at + tail.size])
    with MessageStore.open(root, read_only=True) as store:
        assert not store.report.needed
        assert [f for f in store.check() if f.damage] == []


def test_damage_with_records_behind_it_is_refused_until_cut(root: Path) -> None:
    crash(root)
    with MessageStore.open(root, read_only=True) as store:
        bad = [r.phy_offset for r in components_of(store).log.scan(0)][50]
    path = root / "commitlog" / f"{bad - bad % 16384:020d}"
    data = bytearray(path.read_bytes())
    data[bad % 16384 + 100] ^= 1
    path.write_bytes(data)
    if (root / "consumequeue" / "CURRENT").exists():
        shutil.rmtree(root / "consumequeue")  # so that recovery looks at the damaged file at all
    with pytest.raises(RefusedStoreError, match=f"--cut-at {bad}"):
        MessageStore.open(root, backend=None)
    with pytest.raises((StoreConfigError, RefusedStoreError)):
        MessageStore.open(root, recovery=RecoveryOptions(cut_at=bad + 1))
    assert data == path.read_bytes()
    with MessageStore.open(root, recovery=RecoveryOptions(cut_at=bad)) as store:
        assert store.max_phy_offset() == bad
        assert bodies(store, 0) + bodies(store, 1) == 50
        assert len(store.report.saved) > 1


def test_queues_behind_the_log_are_brought_up(root: Path, backend: str) -> None:
    crash(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    with MessageStore.open(root, backend=backend) as store:
        assert store.report.dispatched_units == 200
        assert bodies(store, 0) == bodies(store, 1) == 100
        for number in range(200):
            (found,) = store.query_message("t", f"k{number}")
            assert found.body == b"%d " % number * 30


def test_queues_ahead_of_the_log_are_cut_back(root: Path) -> None:
    with MessageStore.open(root, read_only=True) as store:
        records = [r.phy_offset for r in components_of(store).log.scan(0)]
    crash(root)
    lost = records[-30]
    for path in sorted((root / "commitlog").iterdir()):
        start = int(path.name)
        if start > lost:
            path.unlink()
        elif start + 16384 > lost:
            path.write_bytes(path.read_bytes()[: lost - start].ljust(16384, b"\0"))
    with MessageStore.open(root) as store:
        assert bodies(store, 0) + bodies(store, 1) == 170
        assert store.put_message(Message("t", b"", 0)).queue_offset == 85
    with MessageStore.open(root) as store:
        assert [f for f in store.check() if f.damage] == []


WRITER = """
import os, signal, sys
from cqstore import Message, MessageStore, StoreConfig
store = MessageStore.open(sys.argv[1], StoreConfig(mapped_file_size_commit_log=16384),
                          backend=sys.argv[2])
for number in range(10**9):
    result = store.put_message(Message("t", b"x" * (number % 300), number % 5))
    print(result.phy_offset, flush=True)
"""


@pytest.mark.crash
@pytest.mark.parametrize("lines", [1, 57, 400, 1500])
def test_a_killed_writer_loses_nothing_it_was_told_is_stored(
    tmp_path: Path, backend: str, lines: int
) -> None:
    root = tmp_path / "store"
    command = [sys.executable, "-c", WRITER, str(root), backend]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        output = [int(writer.stdout.readline()) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        output += [int(line) for line in writer.stdout.read().splitlines(keepends=True)
                 if line.endswith(b"\n")]  # fmt: skip
    for _ in range(2):
        with MessageStore.open(root) as store:
            stored = [record.phy_offset for record in components_of(store).log.scan(0)]
            assert stored[: len(output)] == output
            assert len(stored) <= len(output) + 1
            assert sum(bodies(store, queue_id) for queue_id in range(5)) == len(stored)
            assert [f for f in store.check() if f.damage] == []


def test_a_topic_deleted_and_written_again_keeps_its_last_incarnation(golden: Golden) -> None:
    root = golden("special-defaultRocksDB")
    queues = load_dump("special-defaultRocksDB")["queues"]
    expected = {(q["topic"], q["queueId"]): (q["min"], q["max"]) for q in queues}
    crash(root)
    shutil.rmtree(root / "consumequeue")
    with MessageStore.open(root, backend="rocksdb") as store:
        restarted = {restart.queue for restart in store.report.restarts}
        found = {key: (store.min_offset(*key), store.max_offset(*key)) for key in restarted}
    (topic,) = {key.topic for key in restarted}
    assert topic.startswith("back_")
    assert found == {key: expected[key.topic, key.queue_id] for key in restarted}


def test_after_a_failed_flush_the_store_takes_no_more(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(_: int) -> None:
        raise OSError(28, "No space left on device")

    store = MessageStore.open(root)
    assert store.put_message(Message("t", b"x")).ok
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", no_space)
        with pytest.raises(StoreIOError):
            store.flush()
        with pytest.raises(StoreFailedError):
            store.put_message(Message("t", b"y"))
    store.close()
    assert (root / "abort").exists()
    with MessageStore.open(root) as again:
        assert not again.last_exit_ok
        assert bodies(again) == 101


FULL = """
import resource, sys
from cqstore import Message, MessageStore, StoreConfig
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = MessageStore.open(sys.argv[1], StoreConfig(mapped_file_size_commit_log=2 << 20),
                          backend=sys.argv[2])
print(store.put_message(Message("t", b"x")).status.name)
store.close()
"""


def test_no_room_for_a_file_is_a_status(tmp_path: Path, backend: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "s"), backend],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "CREATE_MAPPED_FILE_FAILED\n"), done.stderr
    assert list((tmp_path / "s" / "commitlog").iterdir()) == []


@pytest.mark.parametrize("name", backend_names())
def test_a_store_that_never_had_a_message_opens_again(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        with MessageStore.open(tmp_path / "store", CONFIG, backend=name) as store:
            assert list(store.queue_keys()) == []
    with MessageStore.open(tmp_path / "store", CONFIG) as store:
        assert store.put_message(Message("t", b"x")).ok


# ---- a recovery that is cut short


def cut_short(
    monkeypatch: pytest.MonkeyPatch, backend: str, fault: BaseException, batches: int
) -> None:
    """Let replays take batches of ten, and the one behind ``batches`` fail."""
    kind = backend_class(backend)
    put_batch, left = kind.put_batch, [batches]

    def failing(queues: ConsumeQueueStore, batch: UnitBatch) -> list[QueueRestart]:
        left[0] -= 1
        if left[0] < 0:
            raise fault
        return put_batch(queues, batch)

    monkeypatch.setattr(replay, "REPLAY_UNITS", 10)
    monkeypatch.setattr(kind, "put_batch", failing)


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("fault", [StoreIOError("cannot write"), KeyboardInterrupt()])
def test_a_rebuild_that_is_cut_short_is_begun_again(
    root: Path,
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    fault: BaseException,
    *,
    crashed: bool,
) -> None:
    if crashed:
        crash(root)
    shutil.rmtree(root / "consumequeue")
    with monkeypatch.context() as patched:
        cut_short(patched, backend, fault, 7)
        with pytest.raises(type(fault)):
            MessageStore.open(root, backend=backend)
    for queue in (root / "consumequeue").glob("t/1/*"):
        queue.unlink()  # as after a batch that had come to the first queue only
    with MessageStore.open(root, backend=backend) as store:
        assert [store.max_offset("t", queue_id) for queue_id in (0, 1)] == [100, 100]
        assert [finding for finding in store.check() if finding.damage] == []


@pytest.mark.parametrize("read_only", [False, True])
def test_an_opening_that_fails_lets_everything_go(root: Path, *, read_only: bool) -> None:
    """Halfway, with log, queues and index open: it holds no descriptor, and changed nothing."""
    damaged = b"?\n" + line({"deleted": "a", "below": 0})
    (root / "cqstore" / "deleted-topics").write_bytes(damaged)
    (root / "abort").touch()
    with pytest.raises(CorruptionError):
        MessageStore.open(root, CONFIG, read_only=read_only)
    before = tree_digest(root)
    with pytest.raises(CorruptionError) as held:  # and with it all that its frames hold
        MessageStore.open(root, CONFIG, read_only=read_only)
    assert descriptors_of(root) == [], held
    if backend_class("file").present(StorePaths(root)):
        assert tree_digest(root) == before
    (root / "cqstore" / "deleted-topics").unlink()
    with MessageStore.open(root, CONFIG) as store:
        assert bodies(store) == 100


def test_an_opening_that_failed_before_it_changed_anything_leaves_a_clean_store(
    root: Path,
) -> None:
    journal = root / "cqstore" / "deleted-topics"
    journal.write_bytes(b"?\n" + line({"deleted": "a", "below": 0}))
    with pytest.raises(CorruptionError):
        MessageStore.open(root)
    assert not (root / "abort").exists()
    journal.unlink()
    with MessageStore.open(root) as store:
        assert store.last_exit_ok


def test_an_opening_that_failed_while_it_removed_queues_leaves_its_mark(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise StoreIOError("no")

    with monkeypatch.context() as patch:
        patch.setattr(QueueRebuild, "drop_half_built", fail)
        with pytest.raises(StoreIOError):
            MessageStore.open(root)
    assert (root / "abort").exists()


def test_an_opening_that_is_refused_lets_the_log_go(root: Path) -> None:
    log = root / "commitlog" / f"{0:020d}"
    data = bytearray(log.read_bytes())
    data[4] ^= 1  # the first record is none, and valid ones lie behind
    log.write_bytes(data)
    (root / "abort").touch()
    gc.collect()  # what the store that made it has left
    maps = Path("/proc/self/maps").read_text().count(str(root))
    with pytest.raises(RefusedStoreError, match="the log is damaged") as held:
        MessageStore.open(root, CONFIG)
    assert descriptors_of(root) == [], held
    assert Path("/proc/self/maps").read_text().count(str(root)) == maps
    assert (root / "abort").exists()


def test_the_checkpoint_vouches_for_no_queue_that_is_being_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut short, what was built would pass for what was there when it was written."""
    root = tmp_path / "s"
    with MessageStore.open(root, CONFIG, backend="file") as store:
        assert all(store.put_message(Message("t", b"x", number % 2)).ok for number in range(9))
    assert StoreCheckpoint(root / "checkpoint").fields.logics_phy_offset > 0
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    reported: list[int] = []

    def fail(*_: object) -> None:
        reported.append(StoreCheckpoint(root / "checkpoint").fields.logics_phy_offset)
        raise StoreIOError("no")

    with monkeypatch.context() as patched:
        patched.setattr(backend_class("file"), "put_batch", fail)
        with pytest.raises(StoreIOError):
            MessageStore.open(root, CONFIG, backend="file")
    assert reported == [0]
    fields = StoreCheckpoint(root / "checkpoint").fields
    assert (fields.logics_phy_offset, fields.logics_msg_timestamp) == (0, 0)
    with MessageStore.open(root, CONFIG) as store:
        assert bodies(store) == 5


def test_the_marker_is_written_before_anything_else(root: Path) -> None:
    order = CallOrder(root)
    with order.watching():
        store = MessageStore.open(root, CONFIG, housekeeping=False)
    changes = [path for what, path in order.made if what in {"write", "rename", "remove"}]
    before = {path.partition(".")[0] for path in changes[: changes.index("abort")]}
    assert before <= {"lock", "abort", "cqstore/file-queue-ends"}, "those would soon be wrong"
    order.made.clear()
    with order.watching():
        store.close()
    removed = order.places("remove", "abort")
    assert removed == [max(at for at, (what, _) in enumerate(order.made) if what != "sync")]
    assert not (root / "abort").exists()


def test_the_report_tells_clean_from_not_clean_and_read_only(root: Path) -> None:
    for clean in (True, False):
        for read_only in (True, False):
            if not clean:
                (root / "abort").touch()
            with MessageStore.open(root, CONFIG, read_only=read_only) as store:
                report = store.report
                assert (report.last_exit_ok, report.read_only) == (clean, read_only)
                assert store.last_exit_ok is clean
                assert report.needed is not clean
                assert (root / "abort").exists() is not (clean and read_only)
