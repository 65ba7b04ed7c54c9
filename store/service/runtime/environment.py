"""Environment: what a store asks of the machine around it, so that tests can answer instead."""

import os
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cqstore.store.concurrency.wakeup import Latch


class Environment:
    """The clock, the calendar, the disk's fill, and the passing of time. Any thread may ask."""

    def now(self) -> float:
        """Return seconds since the epoch, by the clock that file times are taken from."""
        return time.time()

    def local_hour(self) -> int:
        """Return the hour of the day, 0 to 23, in the machine's time zone."""
        return datetime.now().astimezone().hour

    def used_percent(self, folder: Path) -> int:
        """Return how full the file system of ``folder`` is, rounded up; -1 if that is unknown.

        Of what programs may use: the blocks kept for root count as used only where they are.

        Source: RocketMQ ``UtilAll.getDiskPartitionSpaceUsedPercent``.
        """
        try:
            used, whole = used_blocks(folder)
        except OSError:
            return -1
        return -(-100 * used // whole) if whole else -1

    def wait(self, stop: Latch, seconds: float) -> bool:
        """Return after ``seconds``, or when ``stop`` is set; whether it is."""
        return stop.wait(seconds)


def usable_cores(
    groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> int:
    """Return how many processors this process may keep busy, at least 1.

    Those that it is bound to, or what a quota of its control groups (version 2) leaves of them.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = float(bound or 1)
    try:
        group = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
    except (OSError, StopIteration):
        group = "/"  # no such groups here; where there is one, it is of a container
    folder = groups / group.lstrip("/")
    for each in (folder, *folder.parents):
        if not each.is_relative_to(groups):
            break
        with suppress(OSError, ValueError):  # no quota there
            quota, period = map(int, (each / "cpu.max").read_text().split())
            cores = min(cores, quota / period)
    return max(int(cores), 1)


def used_blocks(folder: Path) -> tuple[int, int]:
    """Return how many blocks of a file system are used, and of how many, as ``df`` counts.

    Raises:
        OSError: it cannot be asked.
    """
    facts = os.statvfs(folder)
    used = facts.f_blocks - facts.f_bfree
    return used, used + facts.f_bavail
