"""What a path is: absent is one answer, an error of the system another, on every CPython."""

import ast
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cqstore.store.path_kind import exists, files_below, is_dir, is_file, is_symlink, matching
from tests.kit.faults import EACCES, EIO, Faults

KINDS = [exists, is_dir, is_file, is_symlink]
ROOT = Path(__file__).parents[2]
PRODUCT = ["store", "cq_file", "cq_rocksdb", "migration", "cqstore"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("folder", [True, True, False, False]), ("file", [True, False, True, False]),
        ("link", [True, True, False, True]), ("broken", [False, False, False, True]),
        ("loop", [False, False, False, True]), ("none", [False] * 4),
        ("file/below", [False] * 4), ("nul\0", [False] * 4), ("fifo", [True, False, False, False]),
    ],
)  # fmt: skip
def test_each_kind_is_told(tmp_path: Path, name: str, expected: list[bool]) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "broken").symlink_to("none")
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "fifo")
    assert [kind(tmp_path / name) for kind in KINDS] == expected
    assert [kind(f"{tmp_path}/{name}") for kind in KINDS] == expected


@pytest.mark.parametrize("code", [EACCES, EIO])
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_is_not_an_absence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[Path], bool], code: int
) -> None:
    Faults(monkeypatch).fail("stat", code, str(tmp_path))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - by its number
        kind(tmp_path)
    assert caught.value.errno == code


def test_names_are_matched_as_glob_does(tmp_path: Path) -> None:
    for name in ("b.log", "a.log", ".log", "a.LOG", "log"):
        (tmp_path / name).touch()
    for pattern in ("*.log", "*", "[ab]*"):
        assert matching(tmp_path, pattern) == sorted(tmp_path.glob(pattern))
    assert matching(tmp_path / "none", "*") == []
    assert matching(tmp_path / "log", "*") == []


def test_files_below_are_those_of_all_folders(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    for name in ("1", "a/2", "a/b/3"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "to-file").symlink_to("1")
    os.mkfifo(tmp_path / "a" / "fifo")
    found = {str(path.relative_to(tmp_path)) for path in files_below(tmp_path)}
    assert found == {"1", "a/2", "a/b/3", "to-file"}


@pytest.mark.parametrize(
    "look", [lambda path: matching(path, "*"), lambda path: [*files_below(path)]]
)
@pytest.mark.parametrize("code", [EACCES, EIO, errno.EMFILE])
def test_a_folder_that_cannot_be_listed_is_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: Callable[[Path], object], code: int
) -> None:
    Faults(monkeypatch).fail("list", code, str(tmp_path))
    with pytest.raises(OSError) as caught:  # noqa: PT011 - by its number
        look(tmp_path)
    assert caught.value.errno == code


def test_the_product_asks_no_path_itself() -> None:
    """But for an entry of ``os.scandir``, which raises: by its name, which ends so."""
    requested = {kind.__name__ for kind in KINDS}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr in requested
        and not (isinstance(node.value, ast.Name) and node.value.id.endswith("entry"))
    ]  # fmt: skip
    assert found == []


def sources() -> Iterator[Path]:
    for top in PRODUCT:
        for folder, _, names in os.walk(ROOT / top):
            yield from (Path(folder, name) for name in names if name.endswith(".py"))
