"""Refusals of the disk for this process, in any caller: Python, the compiled core, RocksDB.

``shim.c`` stands before the C library, see there what it meets; ``preload`` has each process of
pytest begin with it. This is how a test tells it what to do.
"""

import ctypes
import errno
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

KINDS = (
    "open", "write", "pwrite", "fsync", "fdatasync", "fallocate", "ftruncate", "rename", "unlink",
    "mkdir", "mmap", "msync", "sync_file_range", "link",
)  # fmt: skip
"""What is met, in the order of ``shim.c``; each stands for the calls of its kind there."""
READ = "pread"
"""A read at a position: ``Shim.notify`` tells of it, and that is all."""
SHORT = -1
"""In the place of an error's number: the system takes a part of what is to be written."""
KILL = -2
"""In the place of an error's number: the process is killed before the call."""
CHANGES = ("write", "pwrite", "fallocate", "ftruncate", "rename", "unlink", "mkdir", "link")
"""Kinds of calls that change a file or a name; openings and writes to a memory map are not met."""
EVER = 1 << 40
_PATH = 4096
_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p)


class _State(ctypes.Structure):
    _fields_ = (
        ("counts", ctypes.c_long * len(KINDS)),
        ("foreign", ctypes.c_long * len(KINDS)),
        ("matched", ctypes.c_long),
        ("struck", ctypes.c_long),
        ("locked", ctypes.c_long),
        ("where", ctypes.c_char * _PATH),
        ("caller", ctypes.c_char * _PATH),
        ("all_short", ctypes.c_int),
    )


@cache
def _library() -> ctypes.PyDLL:
    library = ctypes.PyDLL(None)
    numbers = (ctypes.c_uint, ctypes.c_long, ctypes.c_long, ctypes.c_int)
    library.shim_arm.argtypes = (*numbers, ctypes.c_char_p, ctypes.c_char_p)
    return library


class Shim:
    """The one shim of this process; as a context it is off in the end."""

    def __init__(self) -> None:
        self._state = _State.in_dll(_library(), "shim_state")
        self._reported: object = None
        self._meets = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.off()

    def watch(self, root: Path | str) -> None:
        """Count what is called below ``root`` from here on, and let all of it through."""
        self.arm(root, (), 0)

    def arm(
        self, root: Path | str, kinds: Iterable[str], code: int,
        *, first: int = 1, times: int = EVER, part: str = "",
    ) -> None:  # fmt: skip
        """Give ``code`` to calls of ``kinds`` below ``root``, from the ``first`` that is met on.

        ``part`` is what their path holds. Counting starts over.
        """
        mask = sum(1 << KINDS.index(kind) for kind in kinds)
        paths = str(root).encode(), part.encode()
        _library().shim_arm(mask, first, first + times - 1, code, *paths)

    def off(self) -> None:
        """Let everything through, and meet nothing."""
        self._state.all_short = 0
        _library().shim_off()
        self._reported = None

    @property
    def meets(self) -> bool:
        """Whether anything is met; ``monkeypatch`` sets it back to what it was before a test."""
        return self._meets

    @meets.setter
    def meets(self, meets: bool) -> None:
        self._meets = meets
        if not meets:
            self.off()

    def notify(self, function: Callable[[str, str], object], *libraries: str) -> None:
        """Tell ``function`` kind and path of each call that libraries make, before it is made.

        In its thread, which has the interpreter's lock meanwhile; each of ``libraries`` is a part
        of a path. Not for RocksDB: a thread of Python may hold that lock while it waits for another
        one of RocksDB's.
        """

        def reported(kind: int, path: bytes) -> None:
            function((*KINDS, READ)[kind], path.decode())

        self._reported = callback = _CALLBACK(reported)
        _library().shim_notify(callback, ":".join(libraries).encode())

    def write_parts_only(self) -> None:
        """Have each write take a part of what it is given."""
        self._state.all_short = 1

    @property
    def counts(self) -> Counter[str]:
        """How many calls were met, by kind."""
        return Counter(dict(zip(KINDS, self._state.counts, strict=True)))

    @property
    def foreign(self) -> Counter[str]:
        """Of these the ones that Python did not make."""
        return Counter(dict(zip(KINDS, self._state.foreign, strict=True)))

    @property
    def refused(self) -> int:
        """How many calls were refused or cut short."""
        return int(self._state.struck)

    @property
    def locked(self) -> int:
        """How many of all calls were made while the thread held the interpreter's lock."""
        return int(self._state.locked)

    @property
    def struck(self) -> str:
        """The path of the first call that was; empty if none was."""
        return str(self._state.where.decode())

    @property
    def caller(self) -> str:
        """The name of the library that made it."""
        return Path(self._state.caller.decode()).name


def name_of(code: int) -> str:
    """Return the name of what becomes of a call."""
    return errno.errorcode.get(code, "short")
