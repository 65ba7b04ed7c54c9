"""How many files this process has open."""

import gc
from pathlib import Path


def open_descriptors() -> int:
    """Return how many, when all has been let go that nobody holds: of earlier tests too."""
    gc.collect()
    return len([*Path("/proc/self/fd").iterdir()])
