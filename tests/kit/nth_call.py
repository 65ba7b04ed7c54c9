"""A fault in the n-th system call of one kind that is made below a folder.

Calls are met where Python makes them: the functions of ``os``, the maps of the log, and the files
that ``Path.open`` gives. What RocksDB does inside is not seen. Units of queues in files go the
twin's way, for the core asks the system itself.
"""

import errno
import io
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from store.log import log_map
from tests.kit.faults import path_of
from tests.kit.long_way import append_the_long_way

SHORT = 0
"""In the place of an error's number: the system takes a part of what is to be written."""
_EVERY = (errno.EIO, errno.ENOSPC, errno.EINTR)
FAULTS: dict[str, tuple[int, ...]] = {
    "open": (errno.EMFILE, errno.EIO, errno.ENOSPC),
    "pwrite": (SHORT, *_EVERY),
    "write": (SHORT, *_EVERY),
    "fsync": _EVERY,
    "fdatasync": _EVERY,
    "posix_fallocate": _EVERY,
    "ftruncate": _EVERY,
    "rename": (errno.EIO, errno.ENOSPC),
    "replace": (errno.EIO, errno.ENOSPC),
    "unlink": (errno.EIO,),
    "mkdir": (errno.EMFILE, errno.ENOSPC),
    "mmap": (errno.ENOMEM, errno.EMFILE),
}
"""What may become of each call."""


class Case(NamedTuple):
    """One fault: of which call, which one from 1 on, and what becomes of it."""

    call: str
    number: int
    code: int

    def __str__(self) -> str:
        return f"{self.call} {self.number} {errno.errorcode.get(self.code, 'short')}"


class NthCall:
    """Counts the calls that are made below ``root``, and lets a fault happen to one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
        self._root = f"{root}/"
        self._lock = threading.Lock()  # guards the rest
        self._case: Case | None = None
        self.counts: Counter[str] = Counter()
        self.struck = ""
        """The path that the fault met; empty: none so far."""
        self.all_short = False
        """Of every write only a part is taken."""
        for call in FAULTS.keys() - {"pwrite", "write", "mmap"}:
            monkeypatch.setattr(os, call, self._standing_in(call, getattr(os, call)))
        monkeypatch.setattr(log_map, "LogMap", self._standing_in("mmap", log_map.LogMap))
        append_the_long_way(monkeypatch)
        self._pwrite, self._open = os.pwrite, io.open
        monkeypatch.setattr(os, "pwrite", self._short_pwrite)
        monkeypatch.setattr(io, "open", self._open_file)

    def arm(self, case: Case) -> None:
        """Let ``case`` happen; counting begins anew."""
        with self._lock:
            self._case, self.struck = case, ""
            self.counts.clear()

    def heal(self) -> None:
        """Let everything work again."""
        with self._lock:
            self._case, self.all_short = None, False

    def meet(self, call: str, target: object) -> bool:
        """Count a call; raise if it is to fail, return whether it is to write a part only."""
        path = path_of(target)
        if not path.startswith(self._root):
            return False
        with self._lock:
            self.counts[call] += 1
            case = self._case
            if case is None or (case.call, case.number) != (call, self.counts[call]):
                return self.all_short
            self.struck = path
        if case.code != SHORT:
            raise OSError(case.code, os.strerror(case.code), path)
        return True

    def _standing_in(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            self.meet(call, args[0])
            return real(*args, **kwargs)

        return stand_in

    def _short_pwrite(self, fd: int, data: Any, offset: int) -> int:
        if self.meet("pwrite", fd):
            data = memoryview(data)[: max(len(data) // 2, 1)]
        return self._pwrite(fd, data, offset)

    def _open_file(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(file, int):  # else it is open
            self.meet("open", file)
        if "b" not in mode or not set(mode) & {"w", "a", "x"}:
            return self._open(file, mode, *args, **kwargs)
        return io.BufferedWriter(_File(self, file, mode.replace("b", "")))


class _File(io.FileIO):
    """A file opened for writing whose calls are met."""

    def __init__(self, calls: NthCall, path: Any, mode: str) -> None:
        super().__init__(path, mode)
        self._calls = calls

    def write(self, data: Any) -> int:
        short = self._calls.meet("write", self.fileno())
        return super().write(memoryview(data)[: max(len(data) // 2, 1)] if short else data)

    def truncate(self, size: int | None = None) -> int:
        self._calls.meet("ftruncate", self.fileno())
        return super().truncate(size)
