"""Environment: what a store reads from the machine, so that tests can replace it."""

import os
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cqstore.store.concurrency.wakeup import Latch


class Environment:
    """The clock, the calendar, the usage of disks, and waiting. Any thread."""

    def now(self) -> float:
        """Return seconds since the epoch, from the clock of file times."""
        return time.time()

    def local_hour(self) -> int:
        """Return the hour of the day, 0 to 23, in the machine's time zone."""
        return datetime.now().astimezone().hour

    def used_percent(self, folder: Path) -> int:
        """Return the usage of the file system of ``folder`` in percent, rounded up; -1 if unknown.

        Relative to the space for programs: blocks reserved for root count only if they are used.

        Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent``.
        """
        try:
            used, whole = used_blocks(folder)
        except OSError:
            return -1
        return -(-100 * used // whole) if whole else -1

    def wait(self, stop: Latch, seconds: float) -> bool:
        """Return after ``seconds``, or when ``stop`` is set; return whether it is set."""
        return stop.wait(seconds)


def usable_cores(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Return how many processors this process may keep busy, at least 1.

    These are the processors to which it is bound, limited by a quota of its control groups (version
    2).
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = float(bound or 1)
    try:
        group = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        group = "/"  # no such groups here; if there is one, it is that of a container
    folder = groups / group.lstrip("/")
    for each in (folder, *folder.parents):
        if not each.is_relative_to(groups):
            break
        with suppress(OSError, ValueError):  # no quota there
            quota, period = map(int, (each / "cpu.max").read_text().split())
            cores = min(cores, quota / period)
    return max(int(cores), 1)


def used_blocks(folder: Path) -> tuple[int, int]:
    """Return the number of used blocks of a file system, and of all blocks, as ``df`` counts them.

    Raises:
        OSError: the file system's status cannot be read.
    """
    facts = os.statvfs(folder)
    used = facts.f_blocks - facts.f_bfree
    return used, used + facts.f_bavail
