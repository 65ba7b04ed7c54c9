"""What a process installs that kills itself at a change it makes, and what starts such a process.

It ends by SIGKILL just before its COUNT-th change. A change is that of a name, or an opening of a
file for writing, as Python's audit events tell them; or, for ``killed_at_call``, a call of the
system that changes a file or a name, whoever makes it: Python, the compiled core or RocksDB. A
process that makes fewer changes prints how many it made, last.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kit.commands import run_module
from tests.kit.shim import CHANGES, KILL, Shim

ALL = 1 << 30
_CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
_FOLDER_AT = {"os.remove": 1, "os.rmdir": 1, "os.mkdir": 2}
"""Which word of an event is the descriptor of the folder that its path begins at."""


def is_change(event: str, words: tuple[object, ...]) -> bool:
    """Return whether an audit event is a change of a name, or the opening of a file to write."""
    flags = words[2] if event == "open" else 0
    return event in _CHANGES or (isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR)))


def changes_until_killed(module: str, count: int, *words: object) -> int | None:
    """Run a module in a process; return how many changes it made, ``None`` if it was killed."""
    done = run_module(module, count, *words)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rsplit(maxsplit=1)[-1])


def run_until_killed(count: int, step: Callable[[], object], below: str = "") -> None:
    """Run ``step``; kill this process before the ``count``-th change ``below`` a folder."""
    made = 0

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal made
        if is_change(event, words) and _path_of(event, words).startswith(below):
            made += 1
            if made == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    step()
    sys.stdout.write(f"\n{made}")


def run_until_killed_at_call(count: int, step: Callable[[], object], below: Path) -> None:
    """Run ``step``; kill this process before the ``count``-th call that changes a file there."""
    with Shim() as shim:
        shim.arm(f"{below.resolve()}/", CHANGES, KILL, first=count)
        step()
        sys.stdout.write(f"\n{sum(shim.counts[kind] for kind in CHANGES)}")


def _path_of(event: str, words: tuple[object, ...]) -> str:
    """Return the path of a change; in full if it begins at a descriptor, as in a removed tree."""
    at = _FOLDER_AT.get(event)
    folder = -1 if at is None else words[at]
    if isinstance(folder, int) and folder >= 0:
        return f"{Path(f'/proc/self/fd/{folder}').readlink()}/{words[0]}"
    return str(words[0])
