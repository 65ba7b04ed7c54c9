"""Queues that are listed together with the ends of short ones: which are taken, and what is found.

Expected values are from rows written by hand, and from ``os.stat``.
"""

import os
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqstore.cq_file._queue_folders import changed_at, topic_ends, topic_files
from cqstore.cq_file.layout import parse_file_name, parse_queue_id
from cqstore.cq_file.store import FileConsumeQueueStore
from tests.kit.file_queues import FILE_SIZE, PRE_BLANK, SIZE, UNIT, Disk, rows

FAR = 1 << 40
IDS = st.integers(-(1 << 31) - 2, (1 << 31) + 1).map(str) | st.text("0123456789-+ x", min_size=1)
STARTS = (
    (st.integers(0, 1 << 64) | st.integers((1 << 63) - 2, (1 << 63) + 1)).map("{:020d}".format)
    | st.text("012789-", min_size=19)
)  # fmt: skip
LAST = f"{(1 << 63) - 1:020d}"


def found(disk: Disk, *topics: str, begin: int = 0, end: int = FAR) -> list[Any]:
    return list(topic_ends(str(disk.root / "consumequeue"), [*topics], begin, end))


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    disk = Disk(tmp_path)
    disk.write(0, rows(3, 2), "a", 10)
    disk.write(400, rows(5, 10), "a", 2)
    disk.write(0, rows(15, 1), "b\udcff")
    return disk


def test_ends_of_short_queues_by_rising_queue_id(disk: Disk) -> None:
    a = [
        (2, (400, FILE_SIZE, 10, 0, 14 * SIZE, 15 * SIZE)),
        (10, (0, FILE_SIZE, 2, 0, 4 * SIZE, 5 * SIZE)),
    ]
    b = [(0, (0, FILE_SIZE, 1, 0, 15 * SIZE, 16 * SIZE))]
    assert found(disk, "a", "b\udcff") == [a, b]
    assert found(disk, "b\udcff", "missing", "a") == [b, None, a]
    assert found(disk) == []


@pytest.mark.parametrize(("begin", "live"), [(0, 0), (5 * SIZE, 0), (5 * SIZE + 1, 1), (FAR, 10)])
def test_units_before_the_log_are_counted(disk: Disk, begin: int, live: int) -> None:
    [[(_, end), _]] = found(disk, "a", begin=begin)
    assert end[3] == live


def test_queues_with_units_after_the_end_of_the_log_are_left_out(disk: Disk) -> None:
    [queues] = found(disk, "a", end=14 * SIZE)
    assert [end is not None for _, end in queues] == [False, True]


def spoil(disk: Disk, how: str) -> None:
    """Make queue 2 of topic a one that is not short."""
    path = disk.file(400, "a", 2)
    if how == "two files":
        disk.write(600, rows(15, 1), "a", 2)
    elif how == "another file":
        path.with_name("0").touch()
    elif how == "a folder":
        path.with_name("folder").mkdir()
    elif how == "a link":
        path.rename(path.with_name("file"))
        path.symlink_to("file")
    elif how == "too large a name":
        path.rename(path.with_name(f"{1 << 63:020d}"))
    elif how == "a short name":
        path.rename(path.with_name("400"))
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "pre-blank":
        path.write_bytes(UNIT.pack(*PRE_BLANK).ljust(FILE_SIZE, b"\0"))
    elif how == "no file":
        path.unlink()
    else:
        os.mkfifo(path.with_name("fifo"))


@pytest.mark.parametrize(
    "how",
    ["two files", "another file", "a folder", "a link", "too large a name", "a short name", "empty",
     "pre-blank", "no file", "a pipe"],
)  # fmt: skip
def test_other_queues_are_left_to_the_slow_path(disk: Disk, how: str) -> None:
    spoil(disk, how)
    [[two, ten]] = found(disk, "a")
    assert two == (2, None)
    assert ten[1] is not None
    if how not in {"empty", "pre-blank"}:
        assert topic_files(str(disk.folder("a").parent), [2]) == [None]


def test_folders_that_are_no_queues_are_skipped_and_links_leave_the_topic(disk: Disk) -> None:
    folder = disk.folder("a").parent
    for name in ("00", "-0", "+1", "x", "2147483648", "-2147483649", "99999999999999999999", "1 "):
        (folder / name).mkdir()
    (folder / "3").touch()
    for name in ("2147483647", "-2147483648"):
        shutil.copytree(folder / "10", folder / name)
    [queues] = found(disk, "a")
    ids = [queue_id for queue_id, _ in queues]
    assert ids == [-(1 << 31), 2, 10, (1 << 31) - 1]
    (folder / "4").symlink_to("2")
    assert found(disk, "a") == [None]


@given(st.sets(IDS.filter(lambda name: len(name) < 256)))
def test_queue_ids_are_those_that_python_parses(names: set[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name in {"0", *names}:
            (Path(folder) / "topic" / name).mkdir(parents=True)
        [queues] = topic_ends(folder, ["topic"], 0, FAR)
    parsed = {found for name in {"0", *names} if (found := parse_queue_id(name)) is not None}
    assert queues == [(queue_id, None) for queue_id in sorted(parsed)]


@given(st.lists(STARTS.filter(lambda name: len(name) < 256)))
def test_starts_of_files_are_those_that_python_parses(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for queue_id, name in enumerate(names):
            path = Path(folder) / str(queue_id) / name
            path.parent.mkdir()
            path.touch()
        found = topic_files(folder, [*range(len(names))])
    starts = [None if each is None else each[0] for each in found]
    assert starts == [parse_file_name(name) for name in names]


def test_links_files_and_paths_are_no_topics(disk: Disk) -> None:
    below = disk.root / "consumequeue"
    (below / "link").symlink_to("a")
    (below / "file").touch()
    assert found(disk, "link", "file", "../consumequeue/a", "a\0") == [None] * 4
    assert topic_ends(str(below / "missing"), ["a"], 0, FAR) == [None]
    assert topic_ends(f"{below}\0", ["a"], 0, FAR) == [None]


def test_the_largest_name_and_many_queues(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for queue_id in range(200):
        disk.write(0, rows(queue_id, 1), "many", queue_id)
    disk.file(0, "many", 7).rename(disk.file(0, "many", 7).with_name(LAST))
    [queues] = found(disk, "many")
    ends = dict(queues)
    assert [*ends] == [*range(200)]
    assert ends[7][0] == (1 << 63) - 1
    assert all(ends[each][4] == each * SIZE for each in range(200))


def test_facts_are_name_size_inode_and_times(disk: Disk) -> None:
    path = disk.file(400, "a", 2)
    status = path.stat()
    packed = struct.pack(
        "<4q", status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
    )
    assert topic_files(str(path.parents[1]), [2, 3]) == [
        (400, path.name.encode() + b"\0" + packed), None,
    ]  # fmt: skip
    assert topic_files(str(path.parents[1] / "missing"), [2]) == [None]
    assert topic_files(f"{path.parents[1]}\0", [2]) == [None]


def test_times_of_changes(disk: Disk) -> None:
    paths = [disk.file(400, "a", 2), disk.file(0, "a", 10)]
    os.utime(paths[0], ns=(1, 5_000_000_007))
    os.utime(paths[1], ns=(1, 3))
    os.utime(paths[0].parent, ns=(1, 11))
    folder, texts = str(paths[0].parent), [str(path) for path in paths]
    assert changed_at(folder, texts, FILE_SIZE) == (11, 5_000_000_007)
    assert changed_at(folder, texts[1:], FILE_SIZE) == (11, 3)
    assert changed_at(folder, [], FILE_SIZE) == (11, 0)
    assert changed_at(folder, texts, FILE_SIZE + 1) == (11, 0)
    assert changed_at(folder, [*texts, f"{folder}/missing"], FILE_SIZE) == (0, 0)
    assert changed_at(f"{folder}/missing", texts, FILE_SIZE) == (0, 0)


def test_no_descriptor_stays_open(disk: Disk) -> None:
    spoil(disk, "a link")
    folder = str(disk.folder("a").parent)
    before = set(Path("/proc/self/fd").iterdir())
    for _ in range(50):
        found(disk, "a", "b\udcff", "missing")
        topic_files(folder, [2, 10, 11])
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_store_of_many_topics_is_listed_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cqstore.cq_file.listing._CHUNK_TOPICS", 2)
    disk = Disk(tmp_path)
    for number in range(41):
        disk.write(0, rows(number, 3), f"t{number}", number % 3)
    (disk.root / "consumequeue" / "link").symlink_to("t5")
    store = disk.open(read_only=True)
    spans = {tuple(span.queue): (span.min_offset, span.max_offset) for span in store.spans()}
    assert spans == {(f"t{n}", n % 3): (0, 3) for n in range(41)} | {("link", 2): (0, 3)}
    store.close()


def test_an_end_after_the_end_of_a_shorter_log_is_searched_again(disk: Disk) -> None:
    store = FileConsumeQueueStore(disk.open(read_only=True).context).load()
    disk.log.max_phy = 14 * SIZE
    store.recover()
    assert store.queue("a", 2).ends() == (20, 29)
    assert store.queue("a", 10).ends() == (0, 2)
    store.close()
