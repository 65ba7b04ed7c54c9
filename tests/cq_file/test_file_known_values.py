"""What was written down of the ends: one value that cannot be, and none is believed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cqstore.cq_file import known_ends
from cqstore.cq_file.known_ends import ends_path, read_ends
from cqstore.store.errors import CorruptionError
from cqstore.store.paths import StorePaths
from tests.kit.file_queues import FILE_SIZE, Disk, put, rows

Columns = dict[str, NDArray[Any]]
Change = Callable[[Columns], object]


@pytest.fixture(params=[1, 4096])
def paths(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StorePaths:
    """Return a store of queues a/0 with 13 units in two files, a/5, and b/-1 from 12 on.

    Their ends are written and read in one block, or in a block for each queue.
    """
    monkeypatch.setattr(known_ends, "_BLOCK", request.param)
    disk = Disk(tmp_path)
    (tmp_path / "lock").touch()
    store = disk.open()
    put(store, 0, rows(0, 13), "a")
    put(store, 0, rows(13, 20), "a", 5)
    put(store, 12, rows(40, 8), "b", -1)
    store.close()
    return StorePaths(tmp_path)


def changed(paths: StorePaths, change: Change) -> bool:
    """Write the columns with a change; return whether they are believed."""
    path = ends_path(paths)
    with np.load(path) as found:
        columns = {name: found[name].copy() for name in found.files}
    change(columns)
    with path.open("wb") as file:
        np.savez(file, **columns)
    return read_ends(paths) is not None


def at(column: str, place: Any, value: Any) -> Change:
    def change(columns: Columns) -> None:
        columns[column][place] = value

    return change


def become(column: str, make: Callable[[NDArray[Any]], Any]) -> Change:
    def change(columns: Columns) -> None:
        columns[column] = np.asarray(make(columns[column]))

    return change


def test_what_was_written_down_is_read_again(paths: StorePaths) -> None:
    found = read_ends(paths)
    assert found is not None
    size, queues = found
    known = list(queues)
    assert size == FILE_SIZE
    assert [each[:6] for each in known] == [
        ("a", 0, 0, 13, 12 * 50, 13 * 50), ("a", 5, 0, 20, 32 * 50, 33 * 50),
        ("b", -1, 12, 20, 47 * 50, 48 * 50),
    ]  # fmt: skip
    assert [each.starts for each in known] == [[0, 200], [0, 200], [200]]
    for each in known:
        folder = paths.consume_queue / each.topic / str(each.queue_id)
        files = [path.stat().st_mtime_ns for path in folder.iterdir()]
        assert (each.folder_changed, each.file_changed) == (folder.stat().st_mtime_ns, max(files))


BELIEVED: list[Change] = [
    bool,
    at("numbers", (0, 1), (1 << 31) - 1), at("numbers", (0, 1), -(1 << 31)),
    at("numbers", (0, 3), 20), at("numbers", (0, 2), 13), at("numbers", (2, 2), 0),
    at("numbers", (0, 0), 1), at("starts", [0, 1], [200, 800]), at("starts", [0, 1], [0, 1000]),
]  # fmt: skip
REFUSED: list[Change] = [
    at("version", 0, 1), at("version", 0, 3), at("version", 1, 0), at("version", 1, -200),
    at("version", 1, 190), at("version", 1, 400), become("version", lambda old: old[:1]),
    at("tie", 0, None), at("tie", 31, None),
    become("names", lambda old: old[:1]), become("names", lambda old: old[:0]),
    become("names", lambda _: np.frombuffer(b"a\0..", np.uint8)),
    become("names", lambda _: np.frombuffer(b"a\0b/c", np.uint8)),
    become("names", lambda _: np.frombuffer(b"../a\0b", np.uint8)),
    at("numbers", (2, 0), 2), at("numbers", (2, 0), 3), at("numbers", (0, 0), -1),
    at("numbers", (0, 1), 1 << 31), at("numbers", (0, 1), -(1 << 31) - 1),
    at("numbers", (0, 2), -1), at("numbers", (0, 2), 14), at("numbers", (0, 3), 21),
    at("numbers", (2, 3), 21), become("numbers", lambda old: old[:2]),
    become("numbers", lambda old: old[:, :7]), become("numbers", lambda old: old.astype(np.int32)),
    become("numbers", lambda old: old.astype(float)),
    become("files", lambda old: old.astype(np.int32)),
    become("starts", lambda old: old.astype(np.uint64)),
    at("files", [0, 1], [-1, 5]), at("files", 2, 2), at("files", 2, 0), at("files", 0, 1),
    become("starts", lambda old: old[:-1]), become("starts", lambda old: old.reshape(-1, 1)),
    at("starts", 0, -200), at("starts", 1, 0), at("starts", 1, 210), at("starts", 3, 0),
    lambda columns: columns.pop("starts"), lambda columns: columns.pop("tie"),
]  # fmt: skip


@pytest.mark.parametrize("change", BELIEVED)
def test_every_value_that_can_be_is_believed(paths: StorePaths, change: Change) -> None:
    assert changed(paths, change)


@pytest.mark.parametrize("change", REFUSED)
def test_one_value_that_cannot_be_makes_all_of_it_unbelievable(
    paths: StorePaths, change: Change
) -> None:
    if change in REFUSED[7:9]:
        with np.load(ends_path(paths)) as found:
            tie = found["tie"]
        place = 0 if change is REFUSED[7] else 31
        change = at("tie", place, int(tie[place]) ^ 1)
    assert not changed(paths, change)


def test_ends_that_are_changed_while_they_are_read_are_an_error(paths: StorePaths) -> None:
    found = read_ends(paths)
    assert found is not None
    with ends_path(paths).open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptionError, match="changed while they were read"):
        list(found[1])


def test_ends_that_are_removed_while_they_are_read_are_complete(paths: StorePaths) -> None:
    found = read_ends(paths)
    assert found is not None
    ends_path(paths).unlink()
    assert len(list(found[1])) == 3


def test_a_store_without_queues_has_ends_too_and_without_a_lock_none(tmp_path: Path) -> None:
    disk, paths = Disk(tmp_path), StorePaths(tmp_path)
    disk.open().close()
    assert not ends_path(paths).exists()
    (tmp_path / "lock").touch()
    disk.open().close()
    found = read_ends(paths)
    assert found is not None
    assert list(found[1]) == []
    (tmp_path / "lock").unlink()
    assert read_ends(paths) is None
