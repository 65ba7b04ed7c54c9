"""What this process has open.

Other threads, and what earlier tests left to the collector, open and close beside a test: what is
gone between two looks is not there, and counts are of one folder wherever that can be said.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_left: set[tuple[int, int, int]] = set()
"""Number, device and inode of what tests that are over have lost."""


def descriptors() -> Iterator[tuple[int, Path]]:
    """Yield each descriptor and where it leads, " (deleted)" behind what has no name any more."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield int(each.name), each.readlink()


def open_descriptors() -> int:
    """Return how many, once all without a reference has been released: of earlier tests too."""
    gc.collect()
    return len([*descriptors()])


def descriptors_of(folder: Path) -> list[Path]:
    """Return what this process has open in ``folder``, as far as something holds it, in order."""
    return sorted(path for path, own in _of(folder) if own not in _left)


def leave_descriptors_of(folder: Path) -> None:
    """Hold what is still open in the folder of a test that is over against no test.

    A later one may have a folder of the same name.
    """
    _left.update(own for _, own in _of(folder))


def _of(folder: Path) -> Iterator[tuple[Path, tuple[int, int, int]]]:
    for number, path in descriptors():
        if path.is_relative_to(folder):
            with suppress(OSError):
                found = os.fstat(number)
                yield path, (number, found.st_dev, found.st_ino)
