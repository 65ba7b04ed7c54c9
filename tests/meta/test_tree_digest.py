"""The digest that shows that nothing changed: one byte changes it, a hole does not."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.tree import tree_digest

SIZE = 5 * (1 << 16) + 100
AT = 1_700_000_000_000_000_000


def made(root: Path, content: bytes, written: list[tuple[int, bytes]] | None = None) -> str:
    """Return the digest of a folder with one file; only some places of it are ``written``."""
    root.mkdir()
    path = root / "file"
    with path.open("wb") as file:
        if written is None:
            file.write(content)
        else:
            file.truncate(len(content))
            for at, some in written:
                file.seek(at)
                file.write(some)
    assert path.read_bytes() == content
    os.utime(path, ns=(AT, AT))
    return tree_digest(root)


@pytest.mark.parametrize("places", [[], [0], [(1 << 16) - 1, 1 << 16], [3 << 16], [SIZE - 1]])
def test_a_hole_is_zeros(tmp_path: Path, places: list[int]) -> None:
    content = bytearray(SIZE)
    for at in places:
        content[at] = 7
    dense = made(tmp_path / "dense", bytes(content))
    assert made(tmp_path / "sparse", bytes(content), [(at, b"\x07") for at in places]) == dense
    assert made(tmp_path / "longer", bytes(content) + b"\0") != dense


@pytest.mark.parametrize("at", [0, 4095, 1 << 16, (3 << 16) + 5, SIZE - 101, SIZE - 1])
@pytest.mark.parametrize("kept", [b"", b"x" * 200_000])
def test_one_byte_changes_it(tmp_path: Path, at: int, kept: bytes) -> None:
    content = bytearray(kept.ljust(SIZE, b"\0"))
    before = made(tmp_path / "before", bytes(content), [(0, kept)])
    content[at] ^= 1
    written = [(0, kept), (at, bytes(content[at : at + 1]))]
    assert made(tmp_path / "after", bytes(content), written) != before


def test_bytes_that_moved_by_a_block_change_it(tmp_path: Path) -> None:
    content = bytes(1 << 16) + b"x" * (1 << 16) + bytes(1 << 16)
    moved = content[1 << 16 :] + bytes(1 << 16)
    assert made(tmp_path / "before", content) != made(tmp_path / "after", moved)


CHANGES: dict[str, Callable[[Path], object]] = {
    "name": lambda root: (root / "in" / "file").rename(root / "in" / "other"),
    "folder": lambda root: (root / "in").rename(root / "out"),
    "empty folder": lambda root: (root / "more").mkdir(),
    "time": lambda root: os.utime(root / "in" / "file", ns=(AT, AT + 1)),
    "mode": lambda root: (root / "in" / "file").chmod(0o600),
    "mode of a folder": lambda root: (root / "in").chmod(0o700),
    "kind": lambda root: os.mkfifo(root / "fifo"),
    "link": lambda root: (root / "link").symlink_to("in/file"),
    "what a link leads to": lambda root: (root.parent / "led to").write_bytes(b"other"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_else_is_told_of_a_file_changes_it(tmp_path: Path, change: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    made(root / "in", b"content")
    (tmp_path / "led to").write_bytes(b"there")
    (root / "leads").symlink_to(tmp_path / "led to")
    for path in (root / "in", root / "in" / "file"):
        path.chmod(0o755)
    os.utime(root / "leads", ns=(AT, AT), follow_symlinks=False)
    before, without = tree_digest(root), tree_digest(root, but=root / "in")
    assert tree_digest(root) == before != without
    CHANGES[change](root)
    assert tree_digest(root) != before
    inside = change in {"name", "time", "mode"}
    assert (tree_digest(root, but=root / "in") == without) is inside
    assert tree_digest(tmp_path / "nowhere") == hashlib.sha256().hexdigest()
