"""What takes long to make is made once a run, by whichever worker of pytest-xdist asks first."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return a folder that ``make`` has filled; other workers wait for it, and get the same one.

    Where ``make`` fails its error goes on, and the next who asks tries again in an empty folder.
    """
    base = factory.getbasetemp()
    shared = base.parent if base.name.startswith("popen-") else base  # a worker has its own below
    folder = shared / f"once-{name}"
    done = folder.with_suffix(".done")
    with folder.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder
