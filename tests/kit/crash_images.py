"""Copies of a store that is open: what a killed process leaves."""

import shutil
import time
from pathlib import Path

from tests.kit.call_order import Call


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


class Snapshots:
    """The folder of a store as each call would have left it to a process that was killed before."""

    def __init__(self, root: Path, folder: Path, each: int) -> None:
        self.root, self.each = root, each
        self.folder = folder
        self.seen = 0
        self.taken: list[Path] = []

    def take(self, call: Call) -> None:
        self.seen += 1
        if self.seen % self.each and "commitlog" not in call[1] and "cut" not in call[1]:
            return
        copy = self.folder / str(self.seen)
        self.taken.append(crash_image(self.root, copy))


def restore(copy: Path, root: Path) -> None:
    """Make ``root`` what ``copy`` is, but for its file ``lock``, which stays the very file."""
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()
    shutil.copytree(copy, root, dirs_exist_ok=True, ignore=lambda _, names: {"lock"} & {*names})
