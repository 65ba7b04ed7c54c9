"""A step of a migration that kills itself: ``python -m tests.kit.cut_short COUNT STEP DIR``.

The process ends by SIGKILL just before its COUNT-th change of a name or opening of a file for
writing, as Python's audit events tell them. One that makes fewer prints how many it made.
"""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from migration.rollback.rollback import rollback
from migration.run.run import run_plan
from migration.switch.switch import switch
from migration.verify import verify_migration
from tests.kit.commands import run_module

_CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate"}
_STEPS: dict[str, Callable[[Path], object]] = {
    "run": lambda root: run_plan(root, master="none"),
    "verify": lambda root: verify_migration(root, master="none"),
    "switch": switch,
    "rollback": rollback,
}
ALL = 1 << 30


def is_change(event: str, words: tuple[object, ...]) -> bool:
    """Return whether an audit event is a change of a name, or the opening of a file to write."""
    flags = words[2] if event == "open" else 0
    written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
    return event in _CHANGES or bool(event == "open" and written)


def cut_short(root: Path, step: str, count: int = ALL) -> int | None:
    """Run the step in a process; return how many changes it made, ``None`` if it was killed."""
    done = run_module("tests.kit.cut_short", count, step, root)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def main() -> None:
    count, step, root = sys.argv[1:]
    made = 0

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal made
        if is_change(event, words):
            made += 1
            if made == int(count):
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    _STEPS[step](Path(root))
    sys.stdout.write(str(made))


if __name__ == "__main__":
    main()
