"""Copies of a store that is open: what a killed process leaves."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.kit.call_order import Call, CallOrder


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


@contextmanager
def snapshots(root: Path, folder: Path, each: int) -> Iterator[list[Path]]:
    """Copy a store to ``folder`` as calls in the block would leave it to a process killed before.

    Of calls at the log and at what is cut off it that is each one, else one of ``each``. The list
    grows with the copies.
    """
    calls, taken, numbers = CallOrder(root), list[Path](), count(1)

    def take(call: Call) -> None:
        number = next(numbers)
        if not number % each or "commitlog" in call[1] or "cut" in call[1]:
            taken.append(crash_image(root, folder / str(number)))

    calls.at_each = take
    with calls.watching():
        yield taken


def restore(copy: Path, root: Path) -> None:
    """Make ``root`` what ``copy`` is, but for its file ``lock``, which stays the very file."""
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()
    shutil.copytree(copy, root, dirs_exist_ok=True, ignore=lambda _, names: {"lock"} & {*names})
