"""What the figures were measured on, and what else ran there."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.bench.peer.sides import ROCKETMQ

_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE = (3, 4)
"""Idle and waiting for the disk, in the first line of ``/proc/stat``."""
_GUEST = 8
"""From here on times are shown a second time."""


def machine_facts() -> dict[str, str]:
    """Return what a reader needs to compare, in words."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    version = java.stderr.splitlines()[0].replace('"', "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    return {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "RocketMQ": f"{ROCKETMQ}, {version}, 2 GiB heap",
        "cqstore": f"Python {platform.python_version()}",
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


class Beside:
    """Cores that were at work on something else during one window."""

    def __init__(self) -> None:
        self._busy = 0.0
        self._seconds = 0.0

    def cores(self, cpu_seconds: float) -> float:
        """Return them; ``cpu_seconds`` are the window's own."""
        return max(0.0, (self._busy - cpu_seconds) / self._seconds) if self._seconds else 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the machine while the block runs."""
        busy, up = _busy_seconds(), _up_seconds()
        yield
        self._busy, self._seconds = _busy_seconds() - busy, _up_seconds() - up


def _busy_seconds() -> float:
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(word) for word in file.readline().split()[1:]]
    return sum(tick for at, tick in enumerate(ticks[:_GUEST]) if at not in _IDLE) / _TICKS


def _up_seconds() -> float:
    return float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
