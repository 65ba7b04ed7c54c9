"""What tells made queues from others: bytes, sizes and names, not how the disk holds them."""

import os
from pathlib import Path

import pytest

from cqstore.migration.verify.fingerprint import made_digest
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import CorruptionError

BLOCK = 4096
SIZE = (2 << 20) + 1000
PLACES = [0, 3 * BLOCK - 1, 200 * BLOCK, (1 << 20) + 5, SIZE - 1]
"""Of bytes that are no zeros, with holes of several blocks between them."""


def write(path: Path, data: bytes | bytearray, *, sparse: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for at in range(0, len(data), BLOCK):
            block = data[at : at + BLOCK]
            if any(block) or not sparse:
                file.seek(at)
                file.write(block)
        file.truncate(len(data))


def content() -> bytearray:
    data = bytearray(SIZE)
    for number, at in enumerate(PLACES, 1):
        data[at] = number
    return data


@pytest.fixture
def space(tmp_path: Path) -> Workspace:
    space = Workspace(tmp_path / "space")
    write(space.made.root / "a" / "one", content(), sparse=True)
    write(space.made.root / "b" / "two", b"x" * 10, sparse=True)
    return space


def test_holes_and_zeros_are_alike(space: Workspace) -> None:
    before = made_digest(space)
    path = space.made.root / "a" / "one"
    held = path.stat().st_blocks
    path.unlink()
    write(path, content(), sparse=False)
    assert path.stat().st_blocks > held, "the file system has holes"
    assert made_digest(space) == before


@pytest.mark.parametrize("sparse", [False, True])
def test_any_byte_size_name_or_place_counts(space: Workspace, *, sparse: bool) -> None:
    seen = {made_digest(space)}
    path = space.made.root / "a" / "one"
    for at in [*PLACES, 1, 400 * BLOCK, SIZE - 2]:
        data = content()
        data[at] ^= 0x80
        write(path, data, sparse=sparse)
        seen.add(made_digest(space))
    moved = content()
    moved[200 * BLOCK], moved[300 * BLOCK] = 0, moved[200 * BLOCK]
    for data in (moved, content()[:-1], content() + b"\0", content() + b"\0" * BLOCK):
        write(path, data, sparse=sparse)
        seen.add(made_digest(space))
    write(path, content(), sparse=sparse)
    path.rename(path.with_name("other"))
    seen.add(made_digest(space))
    assert len(seen) == 1 + len(PLACES) + 3 + 4 + 1


def test_what_rocksdb_writes_at_an_opening_does_not_count(space: Workspace) -> None:
    before = made_digest(space)
    for name in ("LOCK", "LOG", "LOG.old.17", "rocksdict-config.json"):
        (space.made.root / "a" / name).write_text("now")
    assert made_digest(space) == before
    os.truncate(space.made.root / "b" / "two", 1)
    short = made_digest(space)
    (space.made.root / "b" / "two").write_bytes(b"y")
    assert len({before, short, made_digest(space)}) == 3


def test_what_is_no_file_is_named(space: Workspace) -> None:
    os.mkfifo(space.made.root / "a" / "three")
    with pytest.raises(CorruptionError, match="three"):
        made_digest(space)
