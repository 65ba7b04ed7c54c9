"""Mapped files: reserved before written, mapped in bounds, views that outlive them."""

import os
import random
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

from cqstore.store.errors import (
    CorruptionError,
    StoreClosedError,
    StoreIOError,
    TruncatedRecordError,
)
from cqstore.store.files import file_name
from cqstore.store.log.gather import gather
from cqstore.store.log.log_files import foreign_files, log_file_paths
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from tests.kit.call_order import CallOrder

SIZE = 65536
CHUNK = 1 << 20
LONG = 2 * CHUNK + 5 * 4096 + 7
"""No whole number of pages, nor of the pieces that zeros are written in."""


def queue(folder: Path, *, mapped_max: int = 64, read_only: bool = False) -> MappedFileQueue:
    made = MappedFileQueue([folder], SIZE, mapped_max=mapped_max, read_only=read_only)
    made.load()
    return made


def test_a_new_file_has_every_block_reserved(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path, SIZE, SIZE)
    assert file.path.name == "00000000000000065536"
    assert file.path.stat().st_blocks * 512 >= SIZE
    file.close()


def test_an_old_sparse_file_is_reserved_before_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as sparse:
        sparse.truncate(SIZE)
    assert path.stat().st_blocks == 0
    file = MappedFile(path, SIZE, read_only=False)
    file.wrote_position = 8192
    file.reserve()
    assert path.stat().st_blocks * 512 >= SIZE - 8192
    file.close()


def test_a_view_is_read_only_and_outlives_map_and_file(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path, 0, SIZE)
    file.map()[:5] = b"hello"
    file.wrote_position = 5
    view = file.select(0, 5)
    with pytest.raises(TypeError):
        view[0] = 1
    file.unmap()
    assert bytes(view) == b"hello"
    file.close()
    assert bytes(view) == b"hello"
    with pytest.raises(StoreClosedError):
        file.select(0, 5)


@pytest.mark.parametrize(("position", "size"), [(-1, 2), (0, 6), (5, 1), (3, -1), (SIZE, 1)])
def test_nothing_behind_what_was_written_is_read(tmp_path: Path, position: int, size: int) -> None:
    file = MappedFile.create(tmp_path, 0, SIZE)
    file.wrote_position = 5
    for read in (file.select, file.read):
        with pytest.raises(TruncatedRecordError):
            read(position, size)
    file.close()


def test_a_file_that_is_held_open_is_read_without_its_name(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"0123456789".ljust(SIZE, b"."))
    file = MappedFile(path, SIZE, read_only=False)
    file.hold_open()
    path.unlink()
    assert file.read_raw(3, 4) == b"3456"
    file.close()


def test_a_file_that_shrank_is_an_error_and_no_signal(tmp_path: Path) -> None:
    file = MappedFile.create(tmp_path, 0, SIZE)
    file.wrote_position = SIZE
    os.truncate(file.path, 4096)
    with pytest.raises(CorruptionError):
        file.read(8192, 100)
    with pytest.raises(CorruptionError):
        file.select(8192, 100)
    file.close()


def test_a_file_is_not_made_over_another(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(b"precious")
    with pytest.raises(StoreIOError) as caught:
        MappedFile.create(tmp_path, 0, SIZE)
    assert caught.value.path == tmp_path / f"{0:020d}"
    assert (tmp_path / f"{0:020d}").read_bytes() == b"precious"


@pytest.mark.parametrize("position", [0, 5, CHUNK - 1, CHUNK, CHUNK + 1, LONG - 1, LONG])
def test_all_behind_a_place_becomes_zero_and_nothing_else(tmp_path: Path, position: int) -> None:
    written = random.Random(position).randbytes(LONG)
    path = tmp_path / f"{0:020d}"
    path.write_bytes(written)
    file = MappedFile(path, LONG, read_only=False)
    file.zero(position)
    assert path.read_bytes() == written[:position] + bytes(LONG - position)
    file.close()


def test_the_holes_of_a_sparse_file_stay_holes_when_its_tail_is_zeroed(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}"
    with path.open("wb") as sparse:
        sparse.truncate(8 * CHUNK)
        for at in (0, 2 * CHUNK, 6 * CHUNK - 4096):
            sparse.seek(at)
            sparse.write(b"x" * 4096)
    before = path.stat().st_blocks
    file = MappedFile(path, 8 * CHUNK, read_only=False)
    file.zero(100)
    assert path.read_bytes() == b"x" * 100 + bytes(8 * CHUNK - 100)
    assert path.stat().st_blocks == before
    file.close()


@pytest.mark.parametrize("pages", [3, 16, 300, 4096])
def test_a_warmed_file_is_written_whole_and_synced_every_so_many_pages(
    tmp_path: Path, pages: int
) -> None:
    size = LONG // 4096 * 4096 if pages > 16 else 20 * 4096
    calls = CallOrder(tmp_path)
    with calls.watching():
        file = MappedFile.create(tmp_path, 0, size, pages)
    assert file.path.read_bytes() == bytes(size)
    name = file.path.name
    synced = -(-size // (pages * 4096)) + 1  # and once more, with its length
    assert calls.made.count(("sync", name)) == synced
    pieces = [("write", name), ("sync", name)] * (synced - 1)
    assert [call for call, _ in groupby(calls.made)] == [("reserve", name), *pieces, ("sync", ".")]
    file.close()


def test_only_so_many_files_are_mapped_at_once(tmp_path: Path) -> None:
    files = queue(tmp_path, mapped_max=3)
    for _ in range(8):
        files.append_file().wrote_position = SIZE
    views = [files.select(number * SIZE, 10) for number in range(8)]
    assert sum(file.is_mapped for file in files) <= 3
    assert [bytes(view) for view in views] == [bytes(10)] * 8
    files.close()


@pytest.mark.parametrize("how", ["select", "gather"])
def test_of_an_old_log_those_are_mapped_that_were_read_last(tmp_path: Path, how: str) -> None:
    for number in range(6):
        (tmp_path / f"{number * SIZE:020d}").write_bytes(bytes([number]) * SIZE)
    files = queue(tmp_path, mapped_max=2, read_only=True)
    held: list[int] = []
    for number in [0, 1, 2, 1, 5, 0, 0, 3, 2, 4, 1]:
        if how == "select":
            assert bytes(files.select(number * SIZE + 9, 3)) == bytes([number]) * 3
        else:
            file = files.file_to_read(number * SIZE + 9)
            assert file.file_from_offset == number * SIZE
            assert gather(file, np.uint8, np.array([9, 2, 9])).tolist() == [number] * 3
        if number not in held:
            held = [*held, number][-2:]  # in the order in which they were mapped
        mapped = {file.file_from_offset // SIZE for file in files if file.is_mapped}
        assert mapped == set(held)
    files.close()


@pytest.mark.parametrize(
    ("names", "sizes", "word"),
    [
        ([f"{0:020d}"], [SIZE - 1], "wrong size"),
        ([f"{0:020d}", f"{2 * SIZE:020d}"], [SIZE, SIZE], "missing"),
        ([f"{100:020d}"], [SIZE], "missing"),
        ([f"{0:020d}", f"{SIZE:020d}"], [0, SIZE], "wrong size"),
    ],
)
def test_rows_of_files_that_cannot_be_are_refused(
    tmp_path: Path, names: list[str], sizes: list[int], word: str
) -> None:
    for name, size in zip(names, sizes, strict=True):
        (tmp_path / name).write_bytes(bytes(size))
    with pytest.raises(CorruptionError, match=word):
        queue(tmp_path)


def test_an_empty_last_file_is_passed_over_and_made_again(tmp_path: Path) -> None:
    (tmp_path / f"{0:020d}").write_bytes(bytes(SIZE))
    (tmp_path / f"{SIZE:020d}").touch()
    files = queue(tmp_path)
    assert files.end_offset() == SIZE
    assert files.append_file().file_from_offset == SIZE
    files.close()


def test_the_file_made_ahead_is_taken_or_deleted(tmp_path: Path) -> None:
    files = queue(tmp_path)
    files.append_file()
    files.make_ahead()
    taken = files.append_file()
    assert taken.file_from_offset == SIZE
    files.make_ahead()
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{0:020d}", f"{SIZE:020d}"]


@pytest.mark.parametrize(
    ("end", "left"),
    [(0, [0]), (1, [0]), (SIZE, [0]), (SIZE + 1, [0, SIZE]), (2 * SIZE, [0, SIZE])],
)
def test_truncation_deletes_the_files_behind(tmp_path: Path, end: int, left: list[int]) -> None:
    files = queue(tmp_path)
    for _ in range(3):
        files.append_file().wrote_position = SIZE
    files.truncate(end)
    assert [file.file_from_offset for file in files] == left
    assert sorted(int(path.name) for path in tmp_path.iterdir()) == left
    files.close()


def test_folders_and_files_of_other_names_are_passed_over(tmp_path: Path) -> None:
    made = queue(tmp_path)
    made.append_file()
    made.close()
    (tmp_path / "lost+found").mkdir()
    assert foreign_files([tmp_path]) == []
    names = [
        "notes", ".nfs0000000000a1", f"{SIZE:020d}.bak", str(SIZE),
        "9" * 20,  # which no long holds
        "\u0660" * 20,  # digits too, but not a name that RocketMQ gives
    ]  # fmt: skip
    for name in names:
        (tmp_path / name).write_bytes(bytes(SIZE))
    os.mkfifo(tmp_path / "fifo")
    assert len(queue(tmp_path, read_only=True).files()) == 1
    found = foreign_files([tmp_path, tmp_path / "none"])
    assert [path.name for path in found] == sorted([*names, "fifo"])


def test_one_thread_makes_the_files_ahead(tmp_path: Path) -> None:
    made = queue(tmp_path)
    made.append_file()
    made.make_ahead()
    ahead = made._ahead
    assert ahead is not None
    ahead._join()
    assert (tmp_path / f"{SIZE:020d}").stat().st_size == SIZE
    assert made.append_file().file_from_offset == SIZE
    made.make_ahead()
    assert made._ahead is ahead
    made.close()


def test_files_of_several_folders_are_listed_as_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two folders, a writer deletes the two oldest files and creates two new ones."""
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    for number in range(4):
        (folders[number % 2] / file_name(number * SIZE)).touch()
    really, listed = Path.iterdir, list[Path]()

    def iterdir(folder: Path) -> Iterator[Path]:
        listed.append(folder)
        found = [*really(folder)]
        if listed == folders[:1]:
            for number in (0, 1):
                (folders[number] / file_name(number * SIZE)).unlink()
                (folders[number] / file_name((number + 4) * SIZE)).touch()
        return iter(found)

    monkeypatch.setattr(Path, "iterdir", iterdir)
    found = [int(path.name) // SIZE for path in log_file_paths(folders)]
    assert found == [2, 3, 4, 5]
    assert listed == folders * 3
