"""A folder of files is listed as the system lists it; any other folder is declined."""

import os
from hashlib import blake2b
from pathlib import Path

import pytest

from cqstore.store.comparing import file_facts
from cqstore.store.core._regular_files import regular_files

NAMES = ["b", "a", "é", "LOCK", "\udcff", "0" * 20]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, name in enumerate(NAMES):
        (tmp_path / name).write_bytes(bytes(number))
        os.utime(tmp_path / name, ns=(1, number * 1_000_000_007 - 5))
    return tmp_path


def test_names_and_status_are_those_of_the_system(folder: Path) -> None:
    found = regular_files(str(folder))
    assert found is not None
    assert [each[0] for each in found] == sorted(NAMES)
    for name, *numbers in found:
        now = (folder / name).stat()
        assert numbers == [now.st_size, now.st_ino, now.st_mtime_ns, now.st_ctime_ns]


def test_an_empty_folder_has_no_files(tmp_path: Path) -> None:
    assert regular_files(str(tmp_path)) == []


@pytest.mark.parametrize("kind", ["folder", "link", "fifo"])
def test_any_other_entry_is_left_to_the_slow_path(folder: Path, kind: str) -> None:
    odd = folder / "zz"
    if kind == "folder":
        odd.mkdir()
    elif kind == "link":
        odd.symlink_to("a")
    else:
        os.mkfifo(odd)
    assert regular_files(str(folder)) is None


def test_what_cannot_be_listed_is_left_to_the_slow_path(folder: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    for path in (folder / "missing", folder / "a", f"{folder}\0"):
        assert regular_files(str(path)) is None
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_the_digest_of_a_folder_is_the_same_on_both_paths(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest() -> str:
        found = blake2b()
        assert file_facts.add_facts(found, folder, below=True)
        return found.hexdigest()

    fast = digest()
    monkeypatch.setattr(file_facts, "regular_files", lambda _: None)
    assert digest() == fast
    (folder / "a").write_bytes(b"changed")
    assert digest() != fast
