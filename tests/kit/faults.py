"""Refusals of the operating system where a path holds a given text, in any caller.

Python, the compiled core or RocksDB: ``tests/kit/shim`` stands before all of them. What only looks
(``stat``, ``list``) is refused at the functions of ``os``, so where Python looks.
"""

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.shim import EVER, Shim

CALLS: dict[str, tuple[str, ...]] = {
    "open": ("open",),
    "write": ("write", "pwrite"),
    "fsync": ("fsync", "fdatasync", "sync_file_range", "msync"),
    "fallocate": ("fallocate",),
    "rename": ("rename",),
    "truncate": ("ftruncate",),
    "mkdir": ("mkdir",),
    "unlink": ("unlink",),
}
"""What can be refused, and the kinds of the shim that it stands for."""
LOOKS: dict[str, tuple[str, ...]] = {"stat": ("stat", "lstat"), "list": ("listdir", "scandir")}
"""What only looks, and the functions of ``os`` that it stands for."""


class Faults:
    """Calls that are refused where a path holds a given text, from ``fail`` to ``heal``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._shim, self._lock = Shim(), threading.Lock()
        self._call = self._part = ""
        self._code = self._left = self._passed = self._refused = 0
        monkeypatch.setattr(self._shim, "meets", True)  # and off when that is undone
        for call, names in LOOKS.items():
            for name in names:
                monkeypatch.setattr(os, name, self._standing_in(call, getattr(os, name)))

    def fail(self, call: str, code: int, part: str, *, times: int = EVER, after: int = 0) -> None:
        """Refuse ``call`` with ``code`` where the path holds ``part``, past the first ``after``."""
        with self._lock:
            self._call, self._code, self._part = call, code, part
            self._left, self._passed, self._refused = times, after, 0
        kinds = CALLS[call] if call not in LOOKS else ()
        self._shim.arm("/", kinds, code, first=after + 1, times=times, part=part)

    def heal(self) -> None:
        """Let everything work again."""
        self._call = ""
        self._shim.off()

    @property
    def refused(self) -> int:
        """How many calls were refused since ``fail``."""
        return self._refused + self._shim.refused

    def _look(self, call: str, target: object) -> None:
        if call != self._call or self._part not in (path := path_of(target)):
            return
        with self._lock:
            if self._passed > 0:
                self._passed -= 1
                return
            if self._left <= 0:
                return
            self._left -= 1
            self._refused += 1
        raise OSError(self._code, os.strerror(self._code), path)

    def _standing_in(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            self._look(call, args[0] if args else "")
            return real(*args, **kwargs)

        return stand_in


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
