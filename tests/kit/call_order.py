"""The system calls that change or sync files below a folder, in the order in which they are made.

For what only a power cut would show: a sync before a rename, a removal or a promise. Python's calls
are met at the functions of ``os``, so that a test may raise there; the core's writes by the shim.
Writes through a memory map and RocksDB's own calls are not seen.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from tests.kit.shim import Shim

_CALLS = {
    "pwrite": "write", "write": "write", "ftruncate": "write",
    "posix_fallocate": "reserve", "fsync": "sync", "fdatasync": "sync",
    "unlink": "remove", "remove": "remove", "rmdir": "remove", "rename": "rename",
    "replace": "rename",
}  # fmt: skip
"""Functions of ``os``, and what they are called here."""
Call = tuple[str, str]
"""What was done, and to which path below the folder; of a rename, the new one."""


class CallOrder:
    """What was called while ``watching``."""

    def __init__(self, root: Path) -> None:
        self.made: list[Call] = []
        self.renamed: dict[int, str] = {}
        """The old path, by the rename's place among the calls."""
        self.at_each: Callable[[Call], object] = bool
        """Told each call before it is made."""
        self._root = root

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Note what this process calls while the block runs."""
        with ExitStack() as patched:
            patched.callback((shim := Shim()).off)
            shim.watch("/")
            shim.notify(self._note_write, "/cq_file/_append", "/index/_writer")
            for name, what in _CALLS.items():
                patched.enter_context(mock.patch.object(os, name, self._noting(name, what)))
            yield

    def places(self, what: str, part: str) -> list[int]:
        """Return where among the calls ``what`` was done to a path that holds ``part``."""
        return [at for at, (call, path) in enumerate(self.made) if call == what and part in path]

    def _noting(self, name: str, what: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def noting(target: Any, *args: Any, **kwargs: Any) -> Any:
            path = self._below(target, kwargs.get("dir_fd"))
            if path is not None:
                new = self._below(args[0], None) if what == "rename" else path
                assert new is not None
                self.at_each((what, new))
                if what == "rename":
                    self.renamed[len(self.made)] = path
                self.made.append((what, new))
            return real(target, *args, **kwargs)

        return noting

    def _note_write(self, kind: str, path: str) -> None:
        """Note a write of the core."""
        below = self._below(path, None)
        if kind == "pwrite" and below is not None:
            self.at_each(("write", below))
            self.made.append(("write", below))

    def _below(self, target: Any, dir_fd: int | None) -> str | None:
        if isinstance(target, int):
            path = Path(f"/proc/self/fd/{target}").readlink()
        elif dir_fd is not None:
            path = Path(f"/proc/self/fd/{dir_fd}").readlink() / os.fsdecode(target)
        else:
            path = Path(os.fsdecode(target))
        return str(path.relative_to(self._root)) if path.is_relative_to(self._root) else None
