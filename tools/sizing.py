"""Estimates of disk, memory and time for a store: ``python -m tools.sizing --help``.

Each formula is a line through measured points. ``tests/tools/test_sizing.py`` compares it with the
points that ``docs/performance.md`` has; ``docs/sizing.md`` says which points these are.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from typing import NamedTuple

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.store.index.layout import INDEX_ENTRY

MIB = 1 << 20
BLOCK = 4096
"""Bytes of a block of the file system."""
LOG_FILE = 1 << 30
DAY = 86_400
MEASURED_QUEUES = {"file": 100_000, "rocksdb": 1_000_000}
"""Backend → the largest number of queues that was measured; results above it are extrapolated."""


class Line(NamedTuple):
    """A straight line: a part that is always there, and a part for each item."""

    base: float
    each: float

    def at(self, count: float) -> float:
        """Return the value for ``count`` items."""
        return self.base + self.each * count


OPEN_MIB = {"file": Line(59.5, 0.0006), "rocksdb": Line(74, 0.00009)}
"""Memory of a process that has opened a store, by queues."""
PUT_MIB = Line(120, 0.00045)
"""Memory that puts to all queues in turn add, RocksDB, by queues."""
OPEN_SECONDS = {"file": Line(0.037, 11.6e-6), "rocksdb": Line(0.06, 0)}
"""Opening after a clean stop, by queues."""
REBUILD_SECONDS = {
    "file": (Line(0, 0.26e-6), Line(0, 122e-6)),
    "rocksdb": (Line(0, 0.45e-6), Line(0, 13e-6)),
}
"""Rebuilding all queues from the log, by messages, and by queues."""
PUT_US = {"file": 1.4, "rocksdb": 1.8}
"""CPU time of a put without a body to eight queues, in µs."""
ROCKSDB_UNIT = 34.1
"""Bytes of a unit in RocksDB, with two units a queue."""
ROCKSDB_BASE = 50_000


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a store has to do."""

    backend: str
    queues: int
    messages_per_day: float
    retention_days: float
    record_bytes: float
    queues_per_topic: float = 8
    index_entries: float = 1
    """Index entries per message: keys and, as in RocketMQ 5.5.1, tags."""

    @property
    def messages(self) -> float:
        """Return the number of messages in the log."""
        return self.messages_per_day * self.retention_days


def record_bytes(body: float, topic: float, properties: float) -> float:
    """Return the size of a record with IPv4 hosts, from the sizes of its parts in bytes."""
    return 91 + body + topic + properties


def log_bytes(load: Workload) -> float:
    """Return the disk use of the log: also a day that expires, the last file and the next one."""
    return (load.messages + load.messages_per_day) * load.record_bytes + 2 * LOG_FILE


def index_bytes(load: Workload) -> float:
    """Return the disk use of the index files: entries, and a slot for every fourth."""
    return load.messages * load.index_entries * (INDEX_ENTRY.size + 1)


def queue_bytes(load: Workload) -> float:
    """Return the disk use of the queues."""
    units = load.messages / load.queues
    if load.backend == "file":
        blocks = math.ceil(max(units, 1) * FILE_UNIT.size / BLOCK)
        return load.queues * BLOCK * (blocks + 1 + 1 / load.queues_per_topic)
    return ROCKSDB_BASE + load.messages * ROCKSDB_UNIT


def open_memory_mib(load: Workload) -> float:
    """Return the memory of a process that has opened the store, in MiB."""
    return OPEN_MIB[load.backend].at(load.queues)


def open_seconds(load: Workload) -> float:
    """Return the time of an opening after a clean stop."""
    return OPEN_SECONDS[load.backend].at(load.queues)


def rebuild_seconds(load: Workload) -> float:
    """Return the time of a rebuild of all queues from a log that is in memory."""
    by_message, by_queue = REBUILD_SECONDS[load.backend]
    return by_message.at(load.messages) + by_queue.at(load.queues)


def put_cpu_us(backend: str, queues: int, body: float) -> float:
    """Return the CPU time of a put with its dispatch, in µs, all threads."""
    return PUT_US[backend] + 0.3 * math.log10(max(queues, 8) / 8) + 2.7 * body / 1024


def estimate(load: Workload, body: float) -> dict[str, str]:
    """Return what the store needs, with units."""
    rate = load.messages_per_day / DAY
    share = rate * put_cpu_us(load.backend, load.queues, body) / 1e6
    rows = {
        "log": f"{log_bytes(load) / 1e9:,.1f} GB",
        "queues": f"{queue_bytes(load) / 1e9:,.2f} GB",
        "index": f"{index_bytes(load) / 1e9:,.1f} GB",
        "memory after the opening": f"{open_memory_mib(load):,.0f} MiB",
        "average puts": f"{rate:,.0f}/s, {share:.3f} of a core",
        "opening after a clean stop": f"{open_seconds(load):,.2f} s",
        "rebuild of all queues": f"{rebuild_seconds(load):,.0f} s",
    }
    if load.backend == "rocksdb":
        rows["memory that puts to all queues add"] = f"{PUT_MIB.at(load.queues):,.0f} MiB"
    if load.queues > MEASURED_QUEUES[load.backend]:
        rows["extrapolated"] = f"measured up to {MEASURED_QUEUES[load.backend]:,} queues"
    return rows


def main() -> None:
    """Print the estimate for the workload that the options give."""
    words = argparse.ArgumentParser(description=estimate.__doc__)
    words.add_argument("--backend", choices=[*OPEN_MIB], default="rocksdb")
    words.add_argument("--queues", type=int, required=True)
    words.add_argument("--messages-per-day", type=float, required=True)
    words.add_argument("--days", type=float, default=3, help="fileReservedTime / 24")
    words.add_argument("--body", type=float, default=1024, help="bytes")
    words.add_argument("--topic", type=float, default=20, help="bytes")
    words.add_argument("--properties", type=float, default=100, help="bytes")
    words.add_argument("--index-entries", type=float, default=2, help="per message: keys and tags")
    given = words.parse_args()
    load = Workload(
        backend=given.backend, queues=given.queues, messages_per_day=given.messages_per_day,
        retention_days=given.days, index_entries=given.index_entries,
        record_bytes=record_bytes(given.body, given.topic, given.properties),
    )  # fmt: skip
    for name, value in estimate(load, given.body).items():
        sys.stdout.write(f"{name:36} {value}\n")


if __name__ == "__main__":
    main()
