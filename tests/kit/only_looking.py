"""A verb that may change nothing below a folder: ``python -m tests.kit.only_looking ROOT WORD…``.

It ends with 99, and says what it would have done, where Python's audit events name an opening for
writing or a change of a name below ROOT, or a lock of a file anywhere.
"""

import os
import sys
from collections.abc import Callable

from cqstore.cli.app import main

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink",
    "os.utime", "os.chmod",
}  # fmt: skip
_LINKS = {"os.symlink", "os.link"}
_LOCKS = {"fcntl.lockf", "fcntl.flock"}


def _watch(root: str) -> Callable[[str, tuple[object, ...]], None]:
    def watch(event: str, words: tuple[object, ...]) -> None:
        given = words[1:] if event in _LINKS else words  # what is made, not what it leads to
        paths = (os.fspath(each) for each in given if isinstance(each, str | os.PathLike))
        path = next(paths, "")
        flags = words[2] if event == "open" else 0
        writes = event in _CHANGES or (isinstance(flags, int) and flags & _WRITES)
        inside = isinstance(path, str) and path.startswith(root)
        if (inside and writes) or event in _LOCKS:
            os.write(2, f"WRITES {event} {words}\n".encode())
            os._exit(99)

    return watch


if __name__ == "__main__":
    watched = _watch(sys.argv[1])
    sys.argv[:] = ["cqstore", *sys.argv[2:]]
    sys.addaudithook(watched)
    main()
