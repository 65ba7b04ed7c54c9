"""What LMDB adds to the contract: commits, the map, processes, forks, files of other programs."""

import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import pytest
from cqstore_lmdb import commit, database, lmdb_store
from cqstore_lmdb.layout import MAX_TOPIC_BYTES, queue_key
from cqstore_lmdb.memory import Snapshot

from cqstore.store.errors import (
    ConsumeQueueError,
    CorruptionError,
    IllegalMessageError,
    RetryableDiskFullError,
    StoreFailedError,
    StoreLockedError,
    StoreStateError,
    UnsupportedFormatError,
)
from cqstore.store.paths import StorePaths
from cqstore.store.queue.backends import backend
from tests.kit.forks import forked
from tests.kit.queue_drive import QueueDrive

FOLDER = "consumequeue_lmdb"


@pytest.fixture
def drive(tmp_path: Path) -> QueueDrive:
    return QueueDrive("lmdb", tmp_path / "store")


def killed(drive: QueueDrive, folder: Path) -> QueueDrive:
    """Open what a kill would leave now: the files without a commit."""
    shutil.copytree(drive.root, folder)
    (folder / FOLDER / "lock.mdb").unlink()  # of this process
    return QueueDrive("lmdb", folder, drive.log)


def blocks(root: Path) -> int:
    """Return how many blocks the database has, without the backend."""
    with lmdb.open(str(root / FOLDER), max_dbs=2, readonly=True) as env:
        table = env.open_db(b"units", create=False)
        with env.begin() as txn:
            found: int = txn.stat(table)["entries"]
        return found


# ---- commits


def test_a_kill_loses_what_was_put_since_the_last_flush(drive: QueueDrive, tmp_path: Path) -> None:
    drive.put("topic", 0, 0, 40)
    drive.store.flush()
    drive.put("topic", 0, 40, 3)
    drive.put("new", 0, 0, 1)
    assert drive.offsets("topic") == (0, 43)
    again = killed(drive, tmp_path / "killed")
    assert again.offsets("topic") == (0, 40)
    assert again.offsets("new") == (0, 0)
    assert again.store.dispatch_from_phy_offset() == 4000
    again.store.close()
    drive.reopen()
    assert drive.phys("topic") == [100 * number for number in range(43)]


def test_a_full_memory_is_committed_by_the_next_put(
    drive: QueueDrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb_store, "MEMORY_BYTES", 2_000)
    drive.put("topic", 0, 0, 50)
    drive.put("other", 0, 0, 100)
    drive.put("topic", 0, 50, 1)
    again = killed(drive, tmp_path / "killed")
    assert again.offsets("topic") == (0, 50)
    assert again.offsets("other") == (0, 100)
    assert again.store.dispatch_from_phy_offset() == 15_000


@pytest.mark.parametrize("first", [0, 7, 31, 32, 33])
def test_units_in_memory_and_in_blocks_are_one_queue(drive: QueueDrive, first: int) -> None:
    expected, end = list[int](), first
    for count in (1, 30, 2, 64, 5, 33):
        expected += [100 * (len(expected) + at) for at in range(count)]
        drive.put("topic", 0, end, count)
        end += count
        assert drive.phys("topic", 0, first) == expected
        assert drive.phys("topic", 0, end - 3, 2) == expected[-3:-1]
        if count % 2:
            drive.store.flush()
    assert drive.phys("topic", 0, first) == expected
    assert list(drive.store.check_files()) == []


def test_a_flush_does_not_hide_what_it_writes(
    drive: QueueDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader and a writer in the middle of a commit see every unit, and change nothing of it."""
    drive.put("topic", 0, 0, 40)
    drive.put("gone", 0, 0, 40)
    entered, leave = threading.Event(), threading.Event()
    real = commit.write_changes

    def slow(*arguments: object) -> None:
        entered.set()
        assert leave.wait(60)
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(lmdb_store, "write_changes", slow)
    flush = threading.Thread(target=drive.store.flush)
    flush.start()
    try:
        assert entered.wait(60)
        drive.put("topic", 0, 40, 10)
        drive.put("gone", 0, 2, 1)  # a new incarnation
        drive.put("new", 0, 0, 1)
        before = [drive.phys(name) for name in ("topic", "gone", "new")]
        assert before[0] == [100 * at for at in [*range(40), *range(80, 90)]]
        assert before[1] == [4000, 4100, 9000]
    finally:
        leave.set()
        flush.join()
    assert [drive.phys(name) for name in ("topic", "gone", "new")] == before
    drive.reopen()
    assert [drive.phys(name) for name in ("topic", "gone", "new")] == before
    assert list(drive.store.check_files()) == []


def test_a_full_disk_loses_nothing_and_the_next_flush_repeats_it(
    drive: QueueDrive, tmp_path: Path
) -> None:
    drive.put("topic", 0, 0, 40)
    drive.store.flush()
    size = (drive.root / FOLDER / "data.mdb").stat().st_size
    for number in range(100):
        drive.put(f"topic-{number}", 0, 0, 40)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        with pytest.raises(RetryableDiskFullError):
            drive.store.flush()
        drive.put("topic", 0, 40, 5)
        assert drive.offsets("topic-99") == (0, 40)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    drive.store.flush()
    again = killed(drive, tmp_path / "killed")
    assert again.offsets("topic") == (0, 45)
    assert again.offsets("topic-99") == (0, 40)
    assert list(again.store.check_files()) == []


def test_a_commit_that_fails_otherwise_ends_all_writing(
    drive: QueueDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAP_BYTES", 1 << 16)
    drive.reopen()
    for number in range(400):
        drive.put(f"topic-{number}", 0, 0, 40)
    with pytest.raises(ConsumeQueueError, match=r"the map of the LMDB queues is full: close"):
        drive.store.flush()
    with pytest.raises(StoreFailedError):
        drive.put("topic", 0, 0, 1)
    monkeypatch.undo()


def test_the_map_grows_when_the_store_is_opened(
    drive: QueueDrive, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        drive.put(f"topic-{number}", 0, 0, 40)
    drive.store.close()
    monkeypatch.setattr(database, "MAP_BYTES", 1 << 16)
    size = (drive.root / FOLDER / "data.mdb").stat().st_size
    assert size > 1 << 16
    drive.reopen()
    assert drive.store.describe()["map bytes"] == 4 * size
    drive.put("topic-0", 0, 40, 1)
    drive.reopen()
    assert drive.offsets("topic-0") == (0, 41)


# ---- space


def test_expiry_and_deletion_delete_blocks_and_their_pages_are_used_again(
    drive: QueueDrive,
) -> None:
    sizes = []
    for round_ in range(8):
        for number in range(50):
            drive.put(f"topic-{number}", 0, round_ * 64, 64)
        drive.store.flush()
        drive.expire((round_ + 1) * 50 * 64)
        drive.store.clean_expired(drive.log.low)
        drive.store.flush()
        sizes.append((drive.root / FOLDER / "data.mdb").stat().st_size)
    assert sizes[-1] <= 2 * sizes[0]
    drive.put("kept", 0, 0, 33)
    drive.put("gone", 0, 0, 64)
    drive.store.flush()
    drive.store.delete_topics(["gone"])
    assert drive.offsets("topic-0") == (512, 512)
    drive.store.close()
    assert blocks(drive.root) == 2


def test_only_queues_of_deleted_files_are_read(drive: QueueDrive) -> None:
    for topic in ("a", "b"):
        drive.put(topic, 0, 0, 64)
    drive.expire(128)
    assert drive.store.clean_expired(drive.log.low, {drive.store.queue("a", 0).key: 64}) == 1
    drive.store.close()
    assert blocks(drive.root) == 2  # of the other topic


# ---- processes and threads

_READER = """
import sys
from pathlib import Path
from tests.kit.queue_drive import QueueDrive
drive = QueueDrive.__new__(QueueDrive)
drive.name, drive.root, drive.last_exit_ok = "lmdb", Path(sys.argv[1]), True
from tests.kit.model import FastLog
from tests.kit.queue_drive import CONFIG
drive.log, drive.config = FastLog(), CONFIG
drive.store = drive._open(read_only=True)
seen = 0
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(20):
        def look(snapshot):
            keys, _ = snapshot.page(b"", b"z", 99)
            return keys, {snapshot.queue(key).ends.next for key in keys}
        keys, ends = drive.store._memory.read(look)
        assert len(keys) in {0, 50} and len(ends) <= 1, ends
        for key in drive.store.queues():
            rows = list(drive.store.queue(*key).read_units(0, 10**6).rows())
            assert [row[2] for row in rows] == [7 * at for at in range(len(rows))]
            assert len(rows) % 20 == 0 or len(keys) == 1
    print(max(ends, default=0), flush=True)
"""


def test_a_process_reads_whole_commits_beside_a_writer(drive: QueueDrive) -> None:
    """The writer reuses pages between commits; a reader's are not among them."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _READER, str(drive.root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "ready\n"
        for round_ in range(20):
            reader.stdin.write("\n")  # it reads during the commit
            reader.stdin.flush()
            for number in range(50):
                drive.put(f"topic-{number:02}", 0, round_ * 20, 20)
            drive.store.flush()
            assert int(reader.stdout.readline()) % 20 == 0
        reader.stdin.write("\n")
        reader.stdin.close()
        assert int(reader.stdout.readline()) == 400
    assert reader.returncode == 0


def test_a_reader_sees_what_was_flushed(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    drive.store.flush()
    drive.put("topic", 0, 3, 1)
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", _READER.replace("{0, 50}", "{1}"), str(drive.root)]
    done = subprocess.run(command, input="\n", check=True, capture_output=True, text=True, cwd=root)
    assert done.stdout.split() == ["ready", "3"]
    assert backend("lmdb").hides_unflushed


def test_a_close_waits_for_a_reader(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    drive.store.flush()
    store = drive.store
    assert isinstance(store, lmdb_store.LmdbConsumeQueueStore)
    inside, found = threading.Event(), list[object]()
    closing = threading.Thread(target=store.close)

    def use(snapshot: Snapshot) -> None:
        inside.set()
        while not snapshot._database.is_closed:
            pass
        closing.join(0.2)  # it cannot end before this thread has read
        found.extend([closing.is_alive(), snapshot.stored_ends(queue_key("topic", 0))])

    reading = threading.Thread(target=store._memory.read, args=[use])
    reading.start()
    assert inside.wait(60)
    closing.start()
    reading.join()
    closing.join()
    assert found == [True, (0, 3, 200)]


def test_a_child_of_a_fork_has_no_queues(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    kept = drive.store.queue("topic", 0)

    def use() -> None:
        for call in (kept.ends, drive.store.flush, lambda: drive.store.queue("topic", 0)):
            with pytest.raises(StoreStateError, match="opened before a fork"):
                call()
        drive.store.close()

    assert forked(use) == 0
    drive.put("topic", 0, 3, 1)
    drive.reopen()
    assert drive.offsets("topic") == (0, 4)


def test_a_process_opens_a_database_once(drive: QueueDrive) -> None:
    with pytest.raises(StoreLockedError, match="already in use by this process"):
        QueueDrive("lmdb", drive.root)
    drive.put("topic", 0, 0, 1)
    drive.store.close()
    assert QueueDrive("lmdb", drive.root).offsets("topic") == (0, 1)


# ---- files


@pytest.mark.parametrize("size", [0, 2 * os.sysconf("SC_PAGESIZE")])
def test_what_a_kill_leaves_of_a_new_database_is_no_database(tmp_path: Path, size: int) -> None:
    paths = StorePaths(tmp_path / "store")
    folder = paths.root / FOLDER
    folder.mkdir(parents=True)
    with lmdb.open(str(folder), max_dbs=2):
        pass
    os.truncate(folder / "data.mdb", size)
    assert not backend("lmdb").present(paths)
    drive = QueueDrive("lmdb", paths.root)
    drive.reopen(read_only=True)
    assert list(drive.store.queues()) == []
    drive.reopen()
    drive.put("topic", 0, 0, 1)
    drive.reopen()
    assert drive.offsets("topic") == (0, 1)
    assert backend("lmdb").present(paths)


def test_reading_creates_nothing(tmp_path: Path) -> None:
    drive = QueueDrive("lmdb", tmp_path / "store")
    drive.store.close()
    shutil.rmtree(drive.root)
    drive.store = drive._open(read_only=True)
    assert list(drive.store.queues()) == []
    assert drive.offsets("topic") == (0, 0)
    drive.store.close()
    assert not drive.root.exists()


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store" / FOLDER
    folder.mkdir(parents=True)
    with lmdb.open(str(folder)) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"b")
    with pytest.raises(UnsupportedFormatError, match=r"expected b'cqstore-lmdb 1', found None"):
        QueueDrive("lmdb", tmp_path / "store")


def test_a_file_that_is_no_database_is_damage(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 1)
    drive.store.close()
    (drive.root / FOLDER / "data.mdb").write_bytes(bytes(range(256)) * 64)
    with pytest.raises(CorruptionError, match=r"move the folder away and open the store again"):
        drive.store = drive._open()


@pytest.mark.parametrize(
    ("table", "value", "problem"),
    [
        (b"queues", b"", "the entry of the queue with key"),
        (b"queues", (5).to_bytes(8) + bytes(8) + bytes(8), "the entry of the queue with key"),
        (b"queues", bytes(8) + (9).to_bytes(8) + bytes(8), "unit 3 is missing"),
        (b"queues", bytes(8) + (3).to_bytes(8) + bytes(8), "the entry has phy_offset 0"),
        (b"units", b"\0" + bytes(27), "block 0 is invalid"),
        (b"units", b"\x1e" + bytes(84), "block 0 is invalid"),
        (b"units", b"\0" + bytes(84), "phy_offset 0 is not after the previous one, 0"),
        (b"units", None, "unit 0 is missing"),
        (b"units", b"\1" + bytes(56), "unit 0 is missing"),
    ],
)
def test_wrong_values_are_findings(
    drive: QueueDrive, table: bytes, value: bytes | None, problem: str
) -> None:
    drive.put("topic", 0, 0, 3)
    drive.store.close()
    key = queue_key("topic", 0) + (bytes(8) if table == b"units" else b"")
    with lmdb.open(str(drive.root / FOLDER), max_dbs=2) as env, env.begin(write=True) as txn:
        db = env.open_db(table, txn)
        assert txn.put(key, value, db=db) if value is not None else txn.delete(key, db=db)
    drive.reopen()
    found = list(drive.store.check_files())
    assert found[0].problem.startswith(problem)
    assert all(each.damage for each in found)


def test_a_stray_block_is_a_finding(drive: QueueDrive) -> None:
    drive.put("topic", 0, 0, 3)
    drive.store.close()
    with lmdb.open(str(drive.root / FOLDER), max_dbs=2) as env, env.begin(write=True) as txn:
        txn.put(queue_key("other", 0) + bytes(8), b"\0" + bytes(28), db=env.open_db(b"units", txn))
    drive.reopen()
    (found,) = drive.store.check_files()
    assert (found.problem, found.expected, found.found) == (
        "the queues have 1 blocks, the database has 2", 1, 2,
    )  # fmt: skip


def test_names_that_no_key_can_contain_are_refused(drive: QueueDrive) -> None:
    longest = "a" * MAX_TOPIC_BYTES
    drive.put(longest, 0, 0, 1)
    drive.reopen()
    assert drive.offsets(longest) == (0, 1)
    for topic in (longest + "a", "a\0b", "\udc80"):
        with pytest.raises(IllegalMessageError):
            drive.store.check_topic(topic)
        with pytest.raises(IllegalMessageError):
            drive.put(topic, 0, 0, 1)
    with pytest.raises(IllegalMessageError, match="queue id 2147483648"):
        drive.store.queue("a", 1 << 31)
