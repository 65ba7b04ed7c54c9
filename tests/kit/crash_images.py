"""Copies of a store that is open: what a killed process leaves."""

import shutil
import time
from pathlib import Path


def crash_image(root: Path, target: Path) -> Path:
    """Copy the files below ``root`` as they lie, without the lock, and return ``target``.

    RocksDB makes and removes files in threads of its own: the copy is taken again then, for a list
    of files and the files themselves would not be of one moment.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        before = sorted(root.rglob("*"))
        try:
            shutil.copytree(root, target, ignore=shutil.ignore_patterns("lock"))
        except shutil.Error:
            before = []
        if before == sorted(root.rglob("*")):
            return target
        shutil.rmtree(target)
    raise AssertionError("the files never stood still")
