"""What this process has open.

Other threads, and what earlier tests left to the collector, open and close beside a test: what is
gone between two looks is not there, and counts are of one folder wherever that can be said.
"""

import gc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def descriptors() -> Iterator[tuple[int, Path]]:
    """Yield each descriptor and where it leads, " (deleted)" behind what has no name any more."""
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            yield int(each.name), each.readlink()


def open_descriptors() -> int:
    """Return how many, when all has been let go that nobody holds: of earlier tests too."""
    gc.collect()
    return len([*descriptors()])


def descriptors_of(folder: Path) -> list[Path]:
    """Return what this process has open in ``folder``, as far as something holds it, in order."""
    return sorted(path for _, path in descriptors() if path.is_relative_to(folder))
