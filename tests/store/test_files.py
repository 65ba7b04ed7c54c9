"""Reading a file at once, up to a limit."""

import tracemalloc
from pathlib import Path

import pytest

from cqstore.store.errors import CorruptionError
from cqstore.store.files import read_file


def test_memory_is_taken_for_the_file_and_not_for_its_limit(tmp_path: Path) -> None:
    """A machine may refuse the limit's 4 GiB although the file is small."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_file(path, 1 << 32) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, 1, 9, 10])
def test_a_file_up_to_the_limit_is_read(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    assert read_file(path, 10) == b"x" * size


@pytest.mark.parametrize("size", [11, 100])
def test_a_longer_file_is_refused(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * size)
    with pytest.raises(CorruptionError, match="the file is too long"):
        read_file(path, 10)


def test_a_file_whose_system_gives_no_size_is_read() -> None:
    assert read_file("/proc/self/status", 1 << 20).startswith(b"Name:")
