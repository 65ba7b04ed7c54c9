"""What a process installs that kills itself at a change it makes, and what starts such a process.

It ends by SIGKILL just before its COUNT-th change of a name, or opening of a file for writing, as
Python's audit events tell them. One that makes fewer prints how many it made, last.
"""

import os
import signal
import sys
from collections.abc import Callable

from tests.kit.commands import run_module

ALL = 1 << 30
_CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
_TREE_REMOVED = "shutil.rmtree"
"""What it removes it does not name in full."""


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
        if (is_change(event, words) or event == _TREE_REMOVED) and str(words[0]).startswith(below):
            made += 1
            if made == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    step()
    sys.stdout.write(f"\n{made}")
