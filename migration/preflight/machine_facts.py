"""Limits of the machine; tests replace the class.

They apply to this process on this machine: a broker of another user, or on another machine, may
have other limits.
"""

import os
import resource
from pathlib import Path
from typing import NamedTuple

_KIB = 1024


class DiskFacts(NamedTuple):
    """Free space of a file system for ordinary users."""

    free_bytes: int
    free_inodes: int | None
    """``None`` where the file system does not count them."""


class MachineLimits:
    """The limits of this process and computer. ``None``: unknown."""

    def __init__(self, proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> None:
        """Read them from what is mounted there."""
        self._proc, self._cgroup = proc, cgroup

    def max_map_count(self) -> int | None:
        """Return ``vm.max_map_count``, the maps that one process may have."""
        return _number(self._proc / "sys/vm/max_map_count")

    def open_files(self) -> tuple[int | None, int | None]:
        """Return the soft and the hard limit of open files (``ulimit -n``); ``None``: no limit."""
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        return tuple(  # type: ignore[return-value]
            None if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard)
        )

    def disk(self, folder: Path) -> DiskFacts | None:
        """Return the free space of the file system of ``folder``."""
        try:
            facts = os.statvfs(folder)
        except OSError:
            return None
        inodes = facts.f_favail if facts.f_files else None
        return DiskFacts(facts.f_bavail * facts.f_frsize, inodes)

    def memory_bytes(self) -> int | None:
        """Return the available memory of the machine or container, in bytes."""
        available = _available_memory(self._proc / "meminfo")
        limit, used = (_number(self._cgroup / f"memory.{name}") for name in ("max", "current"))
        if limit is None or used is None:
            return available
        return max(limit - used, 0) if available is None else min(available, max(limit - used, 0))

    def cores(self) -> int:
        """Return how many cores this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _number(path: Path) -> int | None:
    try:
        return int(path.read_bytes())
    except (OSError, ValueError):  # "max": no limit
        return None


def _available_memory(meminfo: Path) -> int | None:
    """Return the available memory in bytes; ``None`` if it is unknown."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except (OSError, ValueError):
        return None
    for line in lines:
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            return int(rest.split()[0]) * _KIB
    return None
