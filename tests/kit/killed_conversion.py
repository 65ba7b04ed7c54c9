"""A verb that changes metadata and kills itself.

``python -m tests.kit.killed_conversion COUNT ROOT WORD…``, of ``meta`` or, with the first word
``groups``, of that.

The process ends by SIGKILL just before its COUNT-th change of a name below ROOT, or opening of a
file there for writing, as Python's audit events name them. One that makes fewer prints how many it
made. What RocksDB writes itself is not seen.
"""

import os
import signal
import sys
from pathlib import Path

from metadata.commands import app
from operating.commands import groups
from tests.kit.commands import run_module

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "shutil.rmtree"}
ALL = 1 << 30


def changes_until_killed(root: Path, *words: str, count: int = ALL) -> int | None:
    """Run the verb in a process; return how many changes it made, ``None`` if it was killed."""
    done = run_module("tests.kit.killed_conversion", count, root, *words)
    if done.returncode == -signal.SIGKILL:
        return None
    assert done.returncode == 0, done.stdout + done.stderr
    return int(done.stdout.rsplit(maxsplit=1)[-1])


def main() -> None:
    count, root, words = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    made = 0

    def hook(event: str, words: tuple[object, ...]) -> None:
        nonlocal made
        flags = words[2] if event == "open" else 0
        written = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if (event in _CHANGES or written) and str(words[0]).startswith(root):
            made += 1
            if made == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)
    if words[0] == "groups":
        groups(words[1:], standalone_mode=False)
    else:
        app(words, standalone_mode=False)
    sys.stdout.write(f"\n{made}")


if __name__ == "__main__":
    main()
