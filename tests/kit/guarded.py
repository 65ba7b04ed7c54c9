"""A page of memory before one that nobody may read: a read beyond the first ends the process."""

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

PAGE = mmap.PAGESIZE
_LIBRARY = ctypes.CDLL(None, use_errno=True)
_NONE, _ALL = 0, mmap.PROT_READ | mmap.PROT_WRITE


@contextmanager
def guarded_page(data: bytes) -> Iterator[memoryview]:
    """Have a page that ends with ``data``, and is zero before it."""
    pages = mmap.mmap(-1, 2 * PAGE)
    pages[PAGE - len(data) : PAGE] = data
    at = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    _protect(at + PAGE, _NONE)
    try:
        yield memoryview(pages)[:PAGE].toreadonly()
    finally:
        _protect(at + PAGE, _ALL)


def _protect(at: int, access: int) -> None:
    if _LIBRARY.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(PAGE), access):
        raise OSError(ctypes.get_errno(), "mprotect")
