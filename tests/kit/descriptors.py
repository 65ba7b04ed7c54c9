"""How many files this process has open."""

import gc
from contextlib import suppress
from pathlib import Path


def open_descriptors() -> int:
    """Return how many, when all has been let go that nobody holds: of earlier tests too."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])


def descriptors_of(folder: Path) -> list[Path]:
    """Return what this process has open in ``folder``, as far as something holds it."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if (target := each.readlink()).is_relative_to(folder):
                found.append(target)
    return found
