"""The approximate end of a log, for the progress of a scan before the log is opened."""

import os
from collections.abc import Sequence
from pathlib import Path

from cqstore.store.errors import StoreError
from cqstore.store.files import PAGE_BYTES, open_regular
from cqstore.store.log.log_files import log_file_paths


def about_log_end(folders: Sequence[Path]) -> int | None:
    """Return a phy offset near the end of the log in ``folders``; ``None`` if unknown.

    The last file is allocated whole: a binary search finds its first page of zeros, which is wrong
    if a record contains such a page. Raises no errors: opening the log reports them.
    """
    try:
        for path in reversed(log_file_paths(folders)):  # the last one may have been created ahead
            if written := _written_pages(path):
                return int(path.name) + written * PAGE_BYTES
    except (OSError, StoreError):
        return None
    return None


def _written_pages(path: Path) -> int:
    """Return how many pages of a file are not zero, if all of them precede the zero pages."""
    descriptor = open_regular(path)
    try:
        low, high = 0, -(-os.fstat(descriptor).st_size // PAGE_BYTES)
        while low < high:
            middle = (low + high) // 2
            if any(os.pread(descriptor, PAGE_BYTES, middle * PAGE_BYTES)):
                low = middle + 1
            else:
                high = middle
    finally:
        os.close(descriptor)
    return low
