"""The files of a queue as one row of bytes: reads at every place, holes, what lies behind."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.cq_file.descriptor_cache import DescriptorCache
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.queue_files import FileAccess, QueueFiles
from cqstore.store.errors import StoreIOError, TruncatedRecordError

PAGE = 4096


@pytest.fixture
def cache() -> Iterator[DescriptorCache]:
    cache = DescriptorCache(8, read_only=False)
    yield cache
    cache.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the folder of queue 0 of topic T."""
    folder = tmp_path / "T" / "0"
    folder.mkdir(parents=True)
    return folder


def files_of(root: Path, cache: DescriptorCache, size: int, starts: list[int]) -> QueueFiles:
    access = FileAccess(str(root.parent.parent), size, cache, UnsyncedFiles())
    return QueueFiles(access, "T", 0, starts)


def test_reads_at_every_place_of_every_length_end_before_a_missing_file(
    root: Path, cache: DescriptorCache
) -> None:
    held: dict[int, int] = {}
    starts = [10, 20, 40, 50, 60]
    for number, start in enumerate(starts):
        data = bytes(range(number * 10 + 1, number * 10 + 11))
        (root / f"{start:020d}").write_bytes(data)
        held |= dict(enumerate(data, start))
    files = files_of(root, cache, 10, starts)
    assert files.end == 70
    for at in range(-2, 73):
        assert files.file_at(at) == (at // 10 * 10 if at in held else None)
        assert files.next_held(at) == next((here for here in sorted(held) if here >= at), None)
        for length in (0, 1, 9, 10, 11, 25, 60):
            expected = bytearray()
            while len(expected) < length and at + len(expected) in held:
                expected.append(held[at + len(expected)])
            assert files.read(at, length) == bytes(expected), (at, length)
    assert files_of(root, cache, 10, []).end == 0


def test_a_file_that_ends_too_early_tells_where_and_what_was_missing(
    root: Path, cache: DescriptorCache
) -> None:
    for start, length in ((0, 10), (10, 7)):
        (root / f"{start:020d}").write_bytes(bytes(length))
    files = files_of(root, cache, 10, [0, 10])
    with pytest.raises(TruncatedRecordError, match="the queue file is truncated") as caught:
        files.read(5, 14)
    error = caught.value
    assert (error.path, error.position) == (root / f"{10:020d}", 0)
    assert (error.expected, error.got) == (9, 7)


@pytest.mark.parametrize("call", ["pread", "lseek"])
def test_what_the_disk_refuses_of_a_read_is_named(
    root: Path, cache: DescriptorCache, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    (root / f"{0:020d}").write_bytes(bytes(PAGE))
    files = files_of(root, cache, PAGE, [0])
    monkeypatch.setattr(os, call, refused)
    with pytest.raises(StoreIOError, match="cannot read a queue file: Input/output") as caught:
        list(files.data_behind(0))
    assert caught.value.path == root / f"{0:020d}"


@pytest.mark.parametrize("knows_holes", [False, True])
def test_what_lies_behind_is_told_to_the_byte_from_wherever_one_looks(
    root: Path,
    cache: DescriptorCache,
    monkeypatch: pytest.MonkeyPatch,
    knows_holes: bool,  # noqa: FBT001
) -> None:
    size = 40 * PAGE + 20  # more than one chunk, and no whole number of pages
    starts = [size, 2 * size, 4 * size]
    data = [0, 19, PAGE, 3 * PAGE - 1, 20 * PAGE + 7, 37 * PAGE, size - 1]
    for number, start in enumerate(starts):
        path = root / f"{start:020d}"
        path.touch()
        os.truncate(path, size)
        with path.open("r+b") as file:
            for at in data[number:]:
                file.seek(at)
                file.write(b"\1")
    if not knows_holes:

        def unknown(*_: object) -> int:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

        monkeypatch.setattr(os, "lseek", unknown)
    files = files_of(root, cache, size, starts)
    there = [start + at for number, start in enumerate(starts) for at in data[number:]]
    for begin in (0, size, *[at + step for at in there for step in (0, 1)], 5 * size):
        found = []
        for offset, chunk in files.data_behind(begin):
            assert offset >= begin
            assert chunk.count(0) != len(chunk)
            assert files.file_at(offset) == files.file_at(offset + len(chunk) - 1)
            found += [offset + at for at, byte in enumerate(chunk) if byte]
        assert found == [at for at in there if at >= begin], begin


def test_behind_the_first_megabytes_of_a_file_nothing_is_passed_over(
    root: Path, cache: DescriptorCache
) -> None:
    size, at = 20 << 20, (18 << 20) + 5
    with (root / f"{0:020d}").open("wb") as file:
        file.truncate(size)
        file.seek(at)
        file.write(b"\1")
    ((offset, chunk),) = files_of(root, cache, size, [0]).data_behind(at - 3)
    assert offset + chunk.index(1) == at


def test_a_cut_leaves_zeros_and_of_the_files_behind_none(
    root: Path, cache: DescriptorCache
) -> None:
    for cut, left in ((0, []), (1, [10]), (10, [10]), (15, [10]), (20, [10]), (21, [10, 20]),
                      (40, [10, 20]), (45, [10, 20, 40])):  # fmt: skip
        for start in (10, 20, 40):
            (root / f"{start:020d}").write_bytes(b"x" * 10)
        files = files_of(root, cache, 10, [10, 20, 40])
        files.cut(cut)
        assert files.starts == left
        assert sorted(int(path.name) for path in root.iterdir()) == left
        for start in left:
            kept = max(min(cut - start, 10), 0)
            data = (root / f"{start:020d}").read_bytes()
            assert data == b"x" * kept + bytes(10 - kept), cut
            cache.forget(str(root / f"{start:020d}"))
