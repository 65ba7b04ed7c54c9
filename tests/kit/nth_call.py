"""A fault in the n-th system call of one kind that is made below a folder, by any caller.

Python, the compiled core or RocksDB: ``tests/kit/shim`` stands before all of them.
"""

import errno
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from tests.kit.shim import EVER, SHORT, Shim, name_of

_EVERY = (errno.EIO, errno.ENOSPC, errno.EINTR)
FAULTS: dict[str, tuple[int, ...]] = {
    "open": (errno.EMFILE, errno.EIO, errno.ENOSPC),
    "pwrite": (SHORT, *_EVERY),
    "write": (SHORT, *_EVERY),
    "fsync": _EVERY,
    "fdatasync": _EVERY,
    "fallocate": _EVERY,
    "ftruncate": _EVERY,
    "sync_file_range": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EIO, errno.ENOSPC),
    "unlink": (errno.EIO,),
    "mkdir": (errno.EMFILE, errno.ENOSPC),
    "mmap": (errno.ENOMEM,),
    "msync": (errno.EIO,),
}
"""What may become of each call."""
LASTING = (errno.EIO, errno.ENOSPC)
"""What a disk may go on with."""


class Case(NamedTuple):
    """One fault: of which call, which one from 1 on, and what becomes of it."""

    call: str
    number: int
    code: int
    lasts: bool = False
    """All later calls of the kind meet it too."""

    def __str__(self) -> str:
        return f"{self.call} {self.number} {name_of(self.code)}{' and on' if self.lasts else ''}"


class NthCall:
    """Counts the calls that are made below ``root``, and lets a fault happen to one of them."""

    def __init__(self, root: Path) -> None:
        self._root, self._shim = f"{root.resolve()}/", Shim()

    def __enter__(self) -> Self:
        self.count()
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._shim.off()

    def count(self) -> None:
        """Let everything work; counting starts over."""
        self._shim.off()
        self._shim.watch(self._root)

    def arm(self, case: Case) -> None:
        """Let ``case`` happen; counting starts over."""
        times = EVER if case.lasts else 1
        self._shim.arm(self._root, [case.call], case.code, first=case.number, times=times)

    def heal(self) -> None:
        """Let everything work again; what was struck is still told."""
        self._shim.off()

    def write_parts_only(self) -> None:
        """Of every write only a part is taken."""
        self._shim.write_parts_only()

    @property
    def counts(self) -> Counter[str]:
        return self._shim.counts

    @property
    def foreign(self) -> Counter[str]:
        """Of the calls those that Python did not make."""
        return self._shim.foreign

    @property
    def struck(self) -> str:
        """The path that the fault met first, from the folder on; empty: none so far."""
        return self._shim.struck.removeprefix(self._root) if self._shim.refused else ""

    @property
    def caller(self) -> str:
        """The library that made that call."""
        return self._shim.caller

    def cases(self) -> Iterator[Case]:
        """Yield every fault of every call that has been counted."""
        for call in FAULTS:
            for number in range(1, self.counts[call] + 1):
                yield from faults_of(call, number)


def faults_of(call: str, number: int) -> list[Case]:
    """Return what may become of one call."""
    once = [Case(call, number, code) for code in FAULTS[call]]
    return once + [case._replace(lasts=True) for case in once if case.code in LASTING]
