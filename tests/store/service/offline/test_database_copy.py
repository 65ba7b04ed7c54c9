"""A database that changes while it is copied: what is left is of one moment, or is refused."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError, StoreStateError
from cqstore.store.files import read_file
from cqstore.store.service.offline import database_copy
from cqstore.store.service.offline.database_copy import copy_database, is_database, is_database_file
from cqstore.store.service.offline.store_copy import copy_file

FILES = {
    "CURRENT": b"MANIFEST-000004\n",
    "IDENTITY": b"id",
    "MANIFEST-000004": b"one",
    "OPTIONS-000007": b"options",
    "000005.sst": b"five",
    "000006.blob": b"six",
    "000008.log": b"closed",
    "000009.log": b"closed",
    "000010.log": b"open",
}
MADE_ANEW = ("LOCK", "LOG", "LOG.old.17", "000012.dbtmp")
LAST = max(FILES)
Change = Callable[[Path], object]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    (tmp_path / "target").mkdir()
    return folder


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"+more")


def next_manifest(folder: Path) -> None:
    (folder / "MANIFEST-000012").write_bytes(b"two")  # as long as the one before
    (folder / "CURRENT").write_bytes(b"MANIFEST-000012\n")
    (folder / "MANIFEST-000004").unlink()


def compacted(folder: Path) -> None:
    (folder / "000011.sst").write_bytes(b"eleven")
    append(folder / "MANIFEST-000004")
    (folder / "000005.sst").unlink()


CHANGES: dict[str, Change] = {
    "manifest grows": lambda folder: append(folder / "MANIFEST-000004"),
    "last closed log grows": lambda folder: append(folder / "000009.log"),
    "closed log grows": lambda folder: append(folder / "000008.log"),
    "new log": lambda folder: (folder / "000011.log").write_bytes(b"new"),
    "next log": lambda folder: (folder / "000010.log").rename(folder / "000011.log"),
    "log is removed": lambda folder: (folder / "000008.log").unlink(),
    "next manifest": next_manifest,
    "compacted": compacted,
}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def copied(
    source: Path,
    changes: list[Change],
    at: str = LAST,
    place_by: Callable[[Path, Path], object] = os.link,
) -> list[str]:
    """Copy; each time when the file ``at`` has been copied, the next change is made.

    Return the names that were copied, in order.
    """
    names = list[str]()

    def copy(old: str, new: str) -> None:
        copy_file(old, new)
        done(Path(old).name)

    def place(old: Path, new: Path) -> None:
        place_by(old, new)
        done(old.name)

    def done(name: str) -> None:
        names.append(name)
        if name == at and changes:
            changes.pop(0)(source)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database_copy, "copy_file", copy)
        copy_database(source, source.with_name("target"), place)
    assert not changes
    return names


def test_a_database_at_rest_is_copied_once_without_what_an_opening_makes(source: Path) -> None:
    for name in (*MADE_ANEW, "other"):
        (source / name).write_bytes(b"")
    assert copied(source, []) == sorted(FILES)
    assert content(source.with_name("target")) == FILES


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_meanwhile_is_copied_as_it_is_then(
    source: Path, change: Change, name: str
) -> None:
    names = copied(source, [change], name)
    assert content(source.with_name("target")) == content(source)
    tables = [each for each in names if each.endswith((".sst", ".blob"))]
    assert len(tables) == len({*tables})


@pytest.mark.parametrize("at", ["000006.blob", "000011.sst", LAST])
@pytest.mark.parametrize("place_by", [os.link, shutil.copyfile])
def test_a_table_that_was_being_written_is_copied_whole(
    source: Path, at: str, place_by: Callable[[Path, Path], object]
) -> None:
    """RocksDB writes a table under its name, and lists it when it is complete."""
    growing = source / "000011.sst"
    growing.write_bytes(b"ele")

    def complete(folder: Path) -> None:
        with growing.open("ab") as file:
            file.write(b"ven")
        append(folder / "MANIFEST-000004")

    copied(source, [complete], at, place_by)
    assert content(source.with_name("target")) == content(source)


def test_the_only_log_gives_way_to_the_next(source: Path) -> None:
    for name in ("000008.log", "000009.log"):
        (source / name).unlink()
    copied(source, [CHANGES["next log"]])
    assert content(source.with_name("target")) == content(source)


def test_files_of_a_database_are_told_by_their_names(source: Path) -> None:
    assert all(map(is_database_file, (*FILES, *MADE_ANEW)))
    others = ("other", "LOG.old", "000005.sst.bak", "x000005.sst", "MANIFEST", "t0", "")
    assert not any(map(is_database_file, others))
    assert is_database(source)
    (source / "CURRENT").rename(source / "MANIFEST")
    assert not is_database(source)


def test_what_is_not_the_databases_stays_beside_it(source: Path) -> None:
    other = source.with_name("target") / "other"
    other.write_bytes(b"1")
    copied(source, [compacted])
    assert content(other.parent) == content(source) | {"other": b"1"}


def test_a_log_that_is_written_to_costs_no_second_try(source: Path) -> None:
    assert copied(source, [lambda folder: append(folder / "000010.log")]) == sorted(FILES)
    assert content(source.with_name("target")) == FILES


@pytest.mark.parametrize(("tries", "changes"), [(1, 0), (1, 1), (3, 2), (3, 3)])
def test_what_changes_at_each_try_is_refused_in_the_end(
    source: Path, monkeypatch: pytest.MonkeyPatch, tries: int, changes: int
) -> None:
    monkeypatch.setattr(database_copy, "_TRIES", tries)
    growing: list[Change] = [lambda folder: append(folder / "MANIFEST-000004")] * changes
    if changes < tries:
        copied(source, growing)
        assert content(source.with_name("target")) == content(source)
        return
    with pytest.raises(StoreStateError, match=f"each of {tries} attempts") as caught:
        copied(source, growing)
    assert caught.value.path == source


@pytest.mark.parametrize("text", [b"", b"MANIFEST-000004", b"MANIFEST-\n", b"../MANIFEST-000004\n"])
def test_a_database_that_names_no_manifest_is_damaged(source: Path, text: bytes) -> None:
    (source / "CURRENT").write_bytes(text)
    with pytest.raises(CorruptionError, match="does not name a MANIFEST") as caught:
        copied(source, [])
    assert caught.value.path == source / "CURRENT"
    assert caught.value.got == repr(text)
    assert content(source.with_name("target")) == {}


def test_a_database_without_the_manifest_that_it_names_is_damaged(source: Path) -> None:
    (source / "MANIFEST-000004").unlink()
    with pytest.raises(CorruptionError, match="a MANIFEST that does not exist") as caught:
        copied(source, [])
    assert caught.value.path == source / "CURRENT"
    assert (caught.value.expected, caught.value.got) == ("MANIFEST-000004", "no such file")
    assert content(source.with_name("target")) == {}


def test_a_manifest_that_goes_when_current_names_the_next_is_no_damage(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look into CURRENT and the one at the MANIFEST."""
    seen: list[bytes] = []

    def read(path: Path, most: int) -> bytes:
        seen.append(read_file(path, most))
        if len(seen) == 1:
            next_manifest(source)
        return seen[-1]

    monkeypatch.setattr(database_copy, "read_file", read)
    copied(source, [])
    assert content(source.with_name("target")) == content(source)
