"""Refusals of the operating system, injected at the calls that the store's modules make.

``Faults`` stands in for the functions of ``os``, and for the files that ``Path.open`` gives. What
RocksDB does inside, and what goes through a memory map, it does not see. Units of queues in files
go the twin's way, for the core asks the system itself.
"""

import errno
import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.long_way import append_the_long_way

CALLS: dict[str, tuple[str, ...]] = {
    "open": ("open",),
    "write": ("pwrite",),
    "fsync": ("fsync", "fdatasync"),
    "fallocate": ("posix_fallocate",),
    "rename": ("rename", "replace"),
    "truncate": ("ftruncate",),
    "mkdir": ("mkdir",),
    "unlink": ("unlink",),
    "stat": ("stat",),
    "list": ("listdir", "scandir"),
}
"""What can be refused, and the functions of ``os`` that it stands for."""


class Faults:
    """Calls that are refused where a path holds a given text, from ``fail`` to ``heal``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lock = threading.Lock()
        self.refused = 0
        self._call = self._part = ""
        self._code = self._left = self._passed = 0
        for call, names in CALLS.items():
            for name in names:
                monkeypatch.setattr(os, name, self._standing_in(call, getattr(os, name)))
        append_the_long_way(monkeypatch)
        self._open = io.open
        monkeypatch.setattr(io, "open", self._open_file)

    def fail(
        self, call: str, code: int, part: str, *, times: int = 1 << 30, after: int = 0
    ) -> None:
        """Refuse ``call`` with ``code`` where the path holds ``part``, past the first ``after``."""
        assert call in CALLS
        with self._lock:
            self._call, self._code, self._part = call, code, part
            self._left, self._passed, self.refused = times, after, 0

    def heal(self) -> None:
        """Let everything work again."""
        self._call = ""

    def check(self, call: str, target: object) -> None:
        """Raise if this call is to be refused."""
        if call != self._call or self._part not in (path := path_of(target)):
            return
        with self._lock:
            if self._passed > 0:
                self._passed -= 1
                return
            if self._left <= 0:
                return
            self._left -= 1
            self.refused += 1
        raise OSError(self._code, os.strerror(self._code), path)

    def _standing_in(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            self.check(call, args[0] if args else "")
            return real(*args, **kwargs)

        return stand_in

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        self.check("open", file)
        if "b" not in mode or not set(mode) & {"w", "a", "x"}:
            return self._open(file, mode, *args, **kwargs)
        return io.BufferedWriter(_File(self, file, mode.replace("b", "")))


class _File(io.FileIO):
    """A file opened for writing whose writes may be refused."""

    def __init__(self, faults: Faults, path: Any, mode: str) -> None:
        super().__init__(path, mode)
        self._faults, self._path = faults, path_of(path)

    def write(self, data: Any) -> int:
        self._faults.check("write", self._path)
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        self._faults.check("truncate", self._path)
        return super().truncate(size)


def path_of(target: object) -> str:
    """Return the path of a descriptor or of what leads to a file; empty if there is none."""
    if isinstance(target, int):
        try:
            return os.readlink(f"/proc/self/fd/{target}")  # noqa: PTH115 - asked at each call
        except OSError:
            return ""
    return os.fsdecode(target) if isinstance(target, str | bytes | Path) else str(target)


ENOSPC, EIO, EACCES, EROFS, EMFILE = (
    errno.ENOSPC, errno.EIO, errno.EACCES, errno.EROFS, errno.EMFILE,
)  # fmt: skip
