"""A run of an archive that kills itself.

``python -m tests.kit.killed_archive COUNT FOLDER ROOT FORM``.

The process ends by SIGKILL just before its COUNT-th change of a name below FOLDER, or opening of a
file there for writing, as Python's audit events name them. One that makes fewer prints how many it
made.
"""

import os
import signal
import sys
from pathlib import Path

from tests.kit.archived import archive
from tests.kit.commands import run_module

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}
ALL = 1 << 30


def changes_until_killed(
    folder: Path, root: Path, count: int = ALL, form: str = "parquet"
) -> int | None:
    """Archive a store in a process; return how many changes it made, ``None`` if it was killed."""
    done = run_module("tests.kit.killed_archive", count, folder, root, form)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rsplit(maxsplit=1)[-1])


def main() -> None:
    count, folder, root, form = int(sys.argv[1]), *sys.argv[2:]
    made = 0

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal made
        flags = words[2] if event == "open" else 0
        written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if (event in _CHANGES or written) and str(words[0]).startswith(folder):
            made += 1
            if made == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    archive(Path(folder), form, s=Path(root))
    sys.stdout.write(f"\n{made}")


if __name__ == "__main__":
    main()
