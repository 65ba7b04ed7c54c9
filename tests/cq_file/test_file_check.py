"""What ``check_files`` finds, and that it finds nothing in sound queues."""

import os
from pathlib import Path

import pytest

from cqstore.cq_file.check import check_queue_files
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import QueueFinding
from cqstore.store.queue.units import QueueKey
from tests.kit.file_queues import ADDRESS, BATCH, FILE_SIZE, PRE_BLANK, SIZE, Disk, Row, put, rows
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


def test_a_file_that_goes_while_they_are_looked_at_is_no_finding(tmp_path: Path) -> None:
    """A deletion beside it ended the check with an error that named no fault."""
    disk = Disk(tmp_path)
    for start in (0, FILE_SIZE, 2 * FILE_SIZE):
        disk.write(start, rows(1, 1))
    disk.file(0).write_bytes(b"short")
    looking = check_queue_files(StorePaths(disk.root), {}, {}, FILE_SIZE, lambda *_: None)
    assert next(looking).path == str(disk.file(0))
    disk.file(FILE_SIZE).unlink()
    assert list(looking) == []


def test_bytes_behind_the_end_are_found_at_their_first_one(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [*rows(50, 4), (0, 0, 0), *rows(2, 2)])
    (found,) = findings_of(disk)
    assert found.queue == KEY
    assert (found.path, found.queue_offset) == (str(disk.file(0)), 5)
    assert found.position == 5 * 20 + 7  # phy offset 100: seven zeros, then the byte


def test_no_address_behind_the_end_is_followed(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [*rows(50, 4), (0, 0, 0), (SIZE, SIZE, ADDRESS)])
    (found,) = findings_of(disk)
    assert found.problem == "unexpected data after the end of the queue"


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


def test_every_finding_names_file_queue_and_place(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    stray = tmp_path / "consumequeue" / "0-stray"
    stray.parent.mkdir()
    stray.write_bytes(b"x")
    disk.write(0, rows(50, 10))
    disk.write(200, [*rows(60, 2), (0, 0, 0), *rows(2, 1)])
    disk.write(0, rows(1, 10), "U", 7)
    disk.write(400, rows(21, 3), "U", 7)
    (disk.folder("U", 7).parent / "00").mkdir()
    (disk.folder("U", 7) / "0").mkdir()
    (disk.folder("U", 7) / f"{600:020d}").mkdir()
    disk.fill("U", "batchconsumequeue")
    (disk.folder("U", 0, "batchconsumequeue") / f"{138 * 2:020d}").write_bytes(bytes(138))
    (disk.folder("U", 0, "batchconsumequeue") / f"{138 * 3:020d}").write_bytes(b"")
    consume, batch = tmp_path / "consumequeue", disk.folder("U", 0, "batchconsumequeue")
    (disk.folder("U", 7) / f"{600:020d}").rmdir()
    assert [found[:5] for found in findings_of(disk)] == [
        ("a queue file between two others is missing", str(disk.file(400, "U", 7)), ("U", 7), None,
         None),
        ("not a topic folder: it is skipped", str(stray), None, None, None),
        ("not a queue folder: it is skipped", str(consume / "U" / "00"), None, None,
         None),
        ("not a queue file: it is skipped", str(consume / "U" / "7" / "0"), ("U", 7), None,
         None),
        ("the queue file has 0 bytes instead of 138", str(batch / f"{138 * 3:020d}"), ("U", 0),
         None, 0),
        ("unexpected data after the end of the queue", str(disk.file(200)), KEY, 13, 67),
        ("the topic has both simple and batch queues", str(consume / "U"), None, None, None),
        ("queue files are missing between the file at 0 and this file", str(disk.file(400, "U", 7)),
         ("U", 7), 20, None),
        ("queue files are missing between the file at 0 and this file",
         str(batch / f"{138 * 2:020d}"), ("U", 0), None, None),
    ]  # fmt: skip


def test_what_a_rollback_has_not_moved_away_yet_is_no_stray_file(tmp_path: Path) -> None:
    """It moves away the file by which RocksDB is known first, then these, one after the other."""
    disk = Disk(tmp_path)
    disk.write(0, rows(1, 10))
    folder = tmp_path / "consumequeue"
    left = ["IDENTITY", "LOCK", "LOG", "LOG.old.1795635487873", "MANIFEST-000005", "OPTIONS-000007",
            "000012.sst", "000013.log", "000014.blob", "000015.dbtmp"]  # fmt: skip
    stray = ["000012.ssts", "OPTIONS", "LOGS", "current", "x000012.sst"]
    for name in [*left, *stray]:
        (folder / name).touch()
    found = [each for each in findings_of(disk) if "not a topic folder" in each.problem]
    assert sorted(each.path for each in found) == sorted(str(folder / name) for name in stray)


def test_a_file_that_went_or_was_cut_since_the_opening_is_found_and_the_other_queues_are_looked_at(
    tmp_path: Path,
) -> None:
    disk = Disk(tmp_path)
    for queue_id in range(3):
        for start in range(0, 600, 200):
            disk.write(start, rows(start // 20, 10), queue_id=queue_id)
    store = disk.open(read_only=True)
    for queue_id in range(2):
        store._cache.forget(str(disk.file(400, queue_id=queue_id)))
    disk.file(400, queue_id=0).unlink()
    os.truncate(disk.file(400, queue_id=1), 120)
    disk.write(600, rows(1, 1), queue_id=2)  # unknown to the queue
    store._table.simple["T"][2].max_offset = 29
    findings = list(store.check_files())
    assert (findings[0].expected, findings[0].found) == (200, 120)
    assert (findings[2].expected, findings[2].found) == (200, 120)
    found = [(each.problem, each.path, each.queue, each.position) for each in findings]
    assert found == [
        ("the queue file has 120 bytes instead of 200", str(disk.file(400, queue_id=1)),
         ("T", 1), 120),
        ("a queue file is missing", str(disk.file(400, queue_id=0)), KEY, None),
        ("the queue file is truncated", str(disk.file(400, queue_id=1)), ("T", 1), 0),
        ("unexpected data after the end of the queue", str(disk.file(400, queue_id=2)),
         ("T", 2), 186),
    ]  # fmt: skip
    store.close()


@pytest.mark.parametrize("removed", [False, True])
def test_a_file_that_the_writer_removed_meanwhile_is_no_finding(
    tmp_path: Path, *, removed: bool
) -> None:
    disk = Disk(tmp_path)
    disk.write(0, [(0, SIZE, ADDRESS)])
    store = disk.open()

    def resolve(topic: str, queue_id: int, _: int) -> None:
        store._table.simple[topic][queue_id].generation += removed
        raise FileNotFoundError(2, "No such file", "gone")

    found = list(
        check_queue_files(StorePaths(tmp_path), store._table.simple, {}, FILE_SIZE, resolve)
    )
    gone = ("a queue file is missing", "gone", KEY, None, None)
    assert [each[:5] for each in found] == ([] if removed else [gone])
    store.close()


def test_lost_addresses_are_found_in_every_file_whatever_is_missing_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.cq_file.check._SCAN_UNITS", 3)
    disk = Disk(tmp_path)
    lost = [4, 9, 10, 17, 31, 33]
    table: list[Row] = [PRE_BLANK] * 2 + rows(2, 33)
    for at in lost:
        table[at] = (SIZE * at, SIZE, ADDRESS + at)
    for start in (0, 10, 30):
        disk.write(start * 20, table[start : start + 10])
    store = disk.open(read_only=True)
    found = [each for each in store.check_files() if "address" in each.problem]
    assert [(each.queue_offset, each.position, each.path, each.queue) for each in found] == [
        (at, at % 10 * 20, str(disk.file(at // 10 * 200)), KEY) for at in lost
    ]
    store.close()


def test_a_unit_lies_in_a_file_at_a_position_whether_it_is_there_or_not(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.write(200, rows(1, 2))
    disk.fill("B", "batchconsumequeue")
    store = disk.open(read_only=True)
    queue, batch = store.queue("T", 0), store.queue("B", 0)
    assert queue.unit_location(13) == (str(disk.file(200)), 60, b"")
    assert queue.unit_location(3) == (str(disk.folder()), None, b"")
    assert store.queue("T", 9).unit_location(3) == ("", None, b"")
    (path,) = disk.folder("B", 0, "batchconsumequeue").iterdir()
    assert batch.unit_location(batch.min_offset()) == (str(path), 0, b"")
    assert batch.unit_location(1 << 40) == (str(path.parent), None, b"")
    store.close()


def test_files_of_batch_queues_are_compared_with_their_own_size(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.fill("B", "batchconsumequeue")
    disk.write(0, rows(1, 3))
    assert findings_of(disk) == []
    folder = disk.folder("B", 0, "batchconsumequeue")
    (folder / f"{0:020d}").write_bytes(BATCH.pack(50, 50, 9, 100, 0, 2, -1, 0) * 10)
    assert findings_of(disk) == []
