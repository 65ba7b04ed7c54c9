"""Measures: resource usage of a process and of the machine, from ``/proc``."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from cqstore.store.files import bytes_on_disk
from cqstore.store.path_kind import is_dir, is_file, is_symlink

STEAL, OTHERS = 0.02, 0.3
"""Share of the CPU taken by other guests, and CPU seconds per second of other processes, above
which a turn is disturbed."""
_TICKS = os.sysconf("SC_CLK_TCK")
_STEAL = 7
"""Index of the steal time in the line ``cpu`` of ``/proc/stat``."""
_IDLE = (3, 4)
"""Indexes of idle times: idle, and waiting for a disk."""
_GUEST = 8
"""Index of the first time that is already included in ``user``."""


@dataclass(slots=True)
class ResourceUsage:
    """Total clock and CPU time of this process inside ``timed``."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the time of the block, CPU time of all threads of the process."""
        began, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.cpu_seconds += time.process_time() - cpu
            self.seconds += time.perf_counter() - began


def input_output() -> tuple[int, int]:
    """Return the bytes that this process has read from and written to block devices.

    Written pages count when they become dirty.
    """
    found = _pairs(Path("/proc/self/io"))
    return found.get("read_bytes", 0), found.get("write_bytes", 0)


def pss_bytes() -> int:
    """Return the proportional set size of this process; 0 if the system does not report it."""
    for line in lines_of(Path("/proc/self/smaps_rollup")):
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def maps() -> int:
    """Return the number of memory maps of this process."""
    return len(lines_of(Path("/proc/self/maps")))


def descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a name a descriptor, nothing else


def disk_use(paths: list[Path]) -> tuple[int, int]:
    """Return the allocated bytes and the number of files in ``paths``."""
    total = files = 0
    for top in paths:
        for path in [top, *top.rglob("*")] if is_dir(top) else [top]:
            with suppress(FileNotFoundError):  # a database may delete a file meanwhile
                status = path.lstat()
                total += bytes_on_disk(status)
                files += not is_dir(path)
    return total, files


def drop_from_cache(folder: Path) -> None:
    """Drop all files below ``folder`` from the page cache, including written pages.

    Mapped pages remain: close open files first.
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
        """Return the current times; ``processes`` and this process count as ours."""
        first = lines_of(Path("/proc/stat"))[:1]
        fields = [int(word) / _TICKS for word in first[0].split()[1:]] if first else []
        fields = fields[:_GUEST] + [0.0] * (_GUEST - len(fields))
        idle = sum(fields[at] for at in _IDLE)
        ours = sum(map(_process_seconds, [os.getpid(), *processes]))
        busy = sum(fields) - idle - fields[_STEAL]
        return cls(time.perf_counter(), sum(fields), busy, fields[_STEAL], ours)

    def since(self, before: "MachineTimes") -> tuple[float, float]:
        """Return the share of stolen time, and CPU seconds per second of other processes."""
        total, seconds = self.total - before.total, self.at - before.at
        steal = (self.steal - before.steal) / total if total > 0 else 0.0
        others = (self.busy - before.busy) - (self.ours - before.ours)
        return max(steal, 0.0), max(others / seconds, 0.0) if seconds > 0 else 0.0


def disturbance(steal: float, others: float) -> str:
    """Return why a turn is disturbed; empty if it is not."""
    reasons = []
    if steal > STEAL:
        reasons.append(f"other guests took {steal:.0%} of the CPU")
    if others > OTHERS:
        reasons.append(f"other processes took {others:.2f} CPU seconds per second")
    return "; ".join(reasons)


def _process_seconds(pid: int) -> float:
    text = "".join(lines_of(Path(f"/proc/{pid}/stat")))
    fields = text.rpartition(")")[2].split()
    # Of the process itself and of its children that it has waited for, user and system.
    return sum(map(int, fields[11:15])) / _TICKS


def _pairs(path: Path) -> dict[str, int]:
    pairs = (line.partition(":") for line in lines_of(path))
    return {name: int(value) for name, _, value in pairs}


def lines_of(path: Path) -> list[str]:
    """Return the lines of a system file; empty if it does not exist or cannot be read."""
    try:
        return path.read_text().splitlines()
    except OSError:  # no Linux, or not ours to read
        return []
