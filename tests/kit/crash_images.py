"""Copies of a store that is open: what a killed process leaves."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from tests.kit.call_order import Call, CallOrder


def crash_image(root: Path, target: Path) -> Path:
    """Copy the files below ``root`` as they lie, without the lock, and return ``target``.

    RocksDB makes, writes and removes files in threads of its own. The copy is taken again where
    anything changed meanwhile, not only a name: else a table may be copied when it is still empty,
    and the manifest after it when it names the table, as no killed process leaves the two.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        before = _looks(root)
        with suppress(shutil.Error):  # of a file that went; then the looks differ too
            shutil.copytree(root, target, ignore=shutil.ignore_patterns("lock"))
        if before == _looks(root):
            return target
        shutil.rmtree(target)
    raise AssertionError("the files never stood still")


def _looks(root: Path) -> dict[Path, tuple[int, int, int]]:
    """Return which file lies at each path, how long it is and when it was written."""
    looks = dict[Path, tuple[int, int, int]]()
    for path in root.rglob("*"):
        with suppress(FileNotFoundError):  # it went; its folder looks another way then
            stat = path.lstat()
            looks[path] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return looks


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
