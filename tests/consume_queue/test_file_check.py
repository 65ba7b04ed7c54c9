"""What ``check_files`` finds, and that it finds nothing in sound queues."""

from pathlib import Path

from cq_file.store import FileConsumeQueueStore
from store.paths import StorePaths
from store.queue.facts import QueueFinding
from store.queue.units import QueueKey
from tests.kit.file_queues import FILE_SIZE, PRE_BLANK, Disk, put, rows
from tests.kit.tree import tree_digest

KEY = QueueKey("T", 0)


def findings_of(disk: Disk) -> list[QueueFinding]:
    before = tree_digest(disk.root)
    store = disk.open(read_only=True)
    found = list(store.check_files())
    store.close()
    assert tree_digest(disk.root) == before
    return found


def test_sound_queues_have_no_findings(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    store = disk.open()
    put(store, 0, rows(1, 25))
    put(store, 13, rows(30, 2), topic="late")
    put(store, 0, rows(33, 10), topic="full")
    assert list(store.check_files()) == []
    store.close()
    assert findings_of(disk) == []


def test_bytes_behind_the_end_are_found_at_their_first_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [*rows(50, 4), (0, 0, 0), *rows(2, 2)])
    (found,) = findings_of(disk)
    assert found.queue == KEY
    assert (found.path, found.queue_offset) == (str(disk.file(0)), 5)
    assert found.position == 5 * 20 + 7  # phy offset 100: seven zeros, then the byte


def test_odd_names_are_found(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 2))
    topic = disk.folder().parent
    (topic / "notes.txt").write_text("x")
    (topic / "007").mkdir()
    (disk.folder() / "200").write_bytes(b"x")
    (disk.folder() / "00000000000000000200.bak").write_bytes(b"x")
    (tmp_path / "consumequeue" / "stray").write_bytes(b"x")
    assert {Path(found.path).name for found in findings_of(disk)} == {
        "notes.txt",
        "007",
        "200",
        "00000000000000000200.bak",
        "stray",
    }


def test_files_of_rocksdb_beside_the_topics_are_no_finding(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 2))
    for name in ("CURRENT", "LOCK", "000004.log"):
        (tmp_path / "consumequeue" / name).write_bytes(b"x")
    assert findings_of(disk) == []


def test_a_missing_file_and_a_file_without_a_byte_are_found(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    disk.write(400, rows(21, 10))
    disk.file(600).touch()
    found = {Path(item.path).name: item.problem for item in findings_of(disk)}
    assert set(found) == {f"{400:020d}", f"{600:020d}"}
    assert "missing" in found[f"{400:020d}"]
    assert "0 bytes" in found[f"{600:020d}"]


def test_a_queue_of_pre_blanks_alone_is_sound_and_one_of_zeros_that_begins_late_is_not(
    tmp_path: Path,
) -> None:
    """Pre-blanks alone say that all units have expired, and where the queue goes on."""
    disk = Disk(tmp_path)
    disk.write(0, [PRE_BLANK] * 4)
    assert findings_of(disk) == []
    disk.write(FILE_SIZE, [], queue_id=7)
    (found,) = findings_of(disk)
    assert (found.queue, found.queue_offset) == (("T", 7), FILE_SIZE // 20)


def test_queues_are_present_once_one_has_a_file(tmp_path: Path) -> None:
    disk, paths = Disk(tmp_path), StorePaths(tmp_path)
    assert not FileConsumeQueueStore.present(paths)
    disk.folder().mkdir(parents=True)
    (tmp_path / "consumequeue" / "CURRENT").write_bytes(b"x")
    assert not FileConsumeQueueStore.present(paths)
    disk.write(0, rows(1, 1))
    assert FileConsumeQueueStore.present(paths)


def test_the_real_size_counts_blocks_not_lengths(tmp_path: Path) -> None:
    disk = Disk(tmp_path, settings={"mapped_file_size_consume_queue": 2_000_000})
    store = disk.open()
    put(store, 0, rows(1, 1))
    store.flush()
    assert 0 < store.total_size_bytes() < 200_000
    store.close()
