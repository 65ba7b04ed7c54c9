"""``bring_in``: pages of a map are present before they are written to, and no byte changes."""

import mmap
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqstore.store.log import _pages

PAGE = mmap.PAGESIZE
PAGES = 512
SIZE = PAGES * PAGE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[mmap.mmap]:
    """A map of reserved blocks that is untouched, one page of memory at a time."""
    fd = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, SIZE)
    made = mmap.mmap(fd, SIZE)
    made.madvise(mmap.MADV_RANDOM)
    yield made
    made.close()
    os.close(fd)


def _faults(target: mmap.mmap, first: int, last: int) -> int:
    """Write a byte to each page; return how many of them were not there."""
    before = resource.getrusage(resource.RUSAGE_THREAD)
    for page in range(first, last):
        target[page * PAGE] = 1
    after = resource.getrusage(resource.RUSAGE_THREAD)
    return after.ru_minflt + after.ru_majflt - before.ru_minflt - before.ru_majflt


def test_pages_that_were_brought_in_meet_no_fault(mapped: mmap.mmap) -> None:
    assert _pages.bring_in(mapped, 0, SIZE // 2)
    assert _faults(mapped, 0, PAGES // 2) <= PAGES // 20
    assert _faults(mapped, PAGES // 2, PAGES) >= PAGES // 4


def test_a_part_of_a_page_brings_in_the_page(mapped: mmap.mmap) -> None:
    assert _pages.bring_in(mapped, PAGE + 7, SIZE - PAGE)
    assert _faults(mapped, 1, PAGES - 1) <= PAGES // 20


def test_no_byte_changes(mapped: mmap.mmap) -> None:
    mapped[PAGE - 3 : PAGE + 3] = b"stands"
    before = bytes(mapped)
    assert _pages.bring_in(mapped, 0, SIZE)
    assert bytes(mapped) == before


@pytest.mark.parametrize(("start", "end"), [(-1, 8), (8, 7), (0, SIZE + 1), (SIZE + 1, SIZE + 2)])
def test_a_span_outside_is_refused(mapped: mmap.mmap, start: int, end: int) -> None:
    with pytest.raises(ValueError, match="invalid range"):
        _pages.bring_in(mapped, start, end)


def test_nothing_is_asked_of_what_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(bytes(PAGE))
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), PAGE, access=mmap.ACCESS_READ) as read,
        pytest.raises(BufferError),
    ):
        _pages.bring_in(read, 0, PAGE)


def test_an_empty_span_is_nothing(mapped: mmap.mmap) -> None:
    assert _pages.bring_in(mapped, SIZE, SIZE)
