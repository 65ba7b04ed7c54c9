"""Measures: what a process and the machine have spent, as ``/proc`` reports it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cqstore.store.files import bytes_on_disk
from cqstore.store.path_kind import is_dir, is_file, is_symlink

_TICKS = os.sysconf("SC_CLK_TCK")
_STEAL = 7
"""Place of the steal time in the line ``cpu`` of ``/proc/stat``, behind seven others."""
_IDLE = (3, 4)
"""Places of what counts as idle: idle, and waiting for a disk."""
_GUEST = 8
"""From here on what is counted in ``user`` already."""


@dataclass(slots=True)
class ResourceUsage:
    """Time of the clock and of processors that this process took inside ``timed``, summed up."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what the block takes, of all threads of the process."""
        began, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu_seconds += time.process_time() - cpu
            self.seconds += time.perf_counter() - began


def input_output() -> tuple[int, int]:
    """Return bytes that this process has read from and written to block devices until now.

    Written: pages that it made dirty count when they are made so.
    """
    found = _pairs(Path("/proc/self/io"))
    return found.get("read_bytes", 0), found.get("write_bytes", 0)


def pss_bytes() -> int:
    """Return the proportional set size of this process, 0 where the system does not tell it."""
    for line in lines_of(Path("/proc/self/smaps_rollup")):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def maps() -> int:
    """Return how many memory maps this process has."""
    return len(lines_of(Path("/proc/self/maps")))


def descriptors() -> int:
    """Return how many descriptors this process has open."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a name a descriptor, nothing else


def disk_use(paths: list[Path]) -> tuple[int, int]:
    """Return allocated bytes and the number of the files at and below ``paths``."""
    total = files = 0
    for top in paths:
        for path in [top, *top.rglob("*")] if is_dir(top) else [top]:
            with suppress(FileNotFoundError):  # a database may delete a file meanwhile
                status = path.lstat()
                total += bytes_on_disk(status)
                files += not is_dir(path)
    return total, files


def drop_from_cache(folder: Path) -> None:
    """Ask the system to forget the cached pages of all files below ``folder``, written ones too.

    Pages that a process has mapped stay: close what is open first.
    """
    for path in folder.rglob("*"):
        if is_file(path) and not is_symlink(path):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


@dataclass(frozen=True, slots=True)
class MachineTimes:
    """CPU seconds of the whole machine at one moment, and those of some processes."""

    at: float
    total: float
    busy: float
    steal: float
    ours: float

    @classmethod
    def now(cls, processes: list[int]) -> "MachineTimes":
        """Look; ``processes`` and this one are ours."""
        first = lines_of(Path("/proc/stat"))[:1]
        fields = [int(word) / _TICKS for word in first[0].split()[1:]] if first else []
        fields = fields[:_GUEST] + [0.0] * (_GUEST - len(fields))
        idle = sum(fields[at] for at in _IDLE)
        ours = sum(map(_process_seconds, [os.getpid(), *processes]))
        busy = sum(fields) - idle - fields[_STEAL]
        return cls(time.perf_counter(), sum(fields), busy, fields[_STEAL], ours)

    def since(self, before: "MachineTimes") -> tuple[float, float]:
        """Return the share that was stolen, and CPU seconds a second of processes not ours."""
        total, seconds = self.total - before.total, self.at - before.at
        steal = (self.steal - before.steal) / total if total > 0 else 0.0
        others = (self.busy - before.busy) - (self.ours - before.ours)
        return max(steal, 0.0), max(others / seconds, 0.0) if seconds > 0 else 0.0


def _process_seconds(pid: int) -> float:
    text = "".join(lines_of(Path(f"/proc/{pid}/stat")))
    fields = text.rpartition(")")[2].split()
    # Of the process itself and of its children that it has waited for, user and system.
    return sum(map(int, fields[11:15])) / _TICKS


def _pairs(path: Path) -> dict[str, int]:
    pairs = (line.partition(":") for line in lines_of(path))
    return {name: int(value) for name, _, value in pairs}


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file of the system's; none where it has no such file."""
    try:
        return path.read_text().splitlines()
    except OSError:  # no Linux, or not ours to read
        return []
