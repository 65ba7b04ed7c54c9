"""``python -m tools.bench.commits [GROUPS [CHANGED]]``: what one write of consumer offsets costs.

A log with GROUPS groups (1,000,000), each with the offset of one queue, in each form of a broker's
tables. Of these, CHANGED (100) commit between two writes. A row shows the bytes passed to the
system and the CPU time of all threads, per write: the median of several.
"""

import platform
import random
import resource
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

import cqstore
from cqstore import EmbeddedLog, StoreConfig
from cqstore.broker.metadata.model import Form
from tools.bench.workloads import folder

_WRITES = 5
_SIZES = StoreConfig(mapped_file_size_commit_log=1 << 20)
_SETTINGS: dict[Form, tuple[str, dict[str, object]]] = {
    Form.JSON: ("file", {}),
    Form.V1: ("rocksdb", {}),
    Form.SINGLE: ("rocksdb", {"single_metadata": True}),
    Form.V2: ("rocksdb", {"config_manager_version": "v2"}),
}


def written_bytes() -> int:
    """Return the bytes that this process has passed to the system."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("wchar:"))


def cpu_seconds() -> float:
    """Return the CPU time of this process, all threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measured(step: Callable[[], object]) -> tuple[int, float]:
    """Return the bytes and the CPU seconds of ``step``."""
    data, cpu = written_bytes(), cpu_seconds()
    step()
    return written_bytes() - data, cpu_seconds() - cpu


def intervals(log: EmbeddedLog, groups: int, changed: int) -> list[tuple[int, float]]:
    """Commit in ``changed`` groups and write, several times; return the costs of the writes."""
    log.put("topic", b"x", queue_id=0)
    offsets = log.offsets
    assert offsets is not None
    commit = offsets.commit  # type: ignore[attr-defined]
    for number in range(groups):
        commit(f"group-of-consumers-{number}", "topic", 0, 1)
    log.flush()
    draw, found = random.Random(1), []
    for turn in range(_WRITES):
        for number in draw.sample(range(groups), changed):
            commit(f"group-of-consumers-{number}", "topic", 0, turn + 2)
        found.append(measured(log.flush))
    return found


def main(words: list[str]) -> None:
    """Measure each form and print a table."""
    groups, changed = (*map(int, words), *(1_000_000, 100)[len(words) :])
    console = Console()
    console.print(f"{platform.machine()}, Python {platform.python_version()}, {groups:,} groups")
    table = Table("form", "bytes", "CPU, ms")
    for form, (backend, settings) in _SETTINGS.items():
        with folder() as root:
            config = _SIZES.model_copy(update=settings)
            with cqstore.open(root, config, backend=backend, commit_seconds=1e6) as log:
                found = intervals(log, groups, changed)
        size, cpu = (statistics.median(each) for each in zip(*found, strict=True))
        console.print(f"… {form}: {size:,.0f} bytes, {1000 * cpu:,.1f} ms", style="dim")
        table.add_row(form, f"{size:,.0f}", f"{1000 * cpu:,.1f}")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
