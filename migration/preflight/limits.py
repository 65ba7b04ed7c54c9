"""Check the machine: kernel limits, disk and memory, and the duration of the move.

All figures are estimated from the totals of the survey; they are upper bounds, not averages.

Source: RocketMQ ``DefaultMappedFile`` (a map and a descriptor a file); field notes 46, 47, b.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from cqstore.migration.preflight.machine_facts import MachineLimits
from cqstore.migration.preflight.preflight_report import PreflightFinding, Severity, finding
from cqstore.migration.preflight.queue_survey import Totals
from cqstore.store.queue.bulk import BulkBackend, DiskUse


class MachineLimit(StrEnum):
    """Codes of findings about limits of this machine, which may not be those of the broker's."""

    MAP_COUNT = "map-count"
    OPEN_FILES = "open-files"
    INODES = "inodes"
    DISK = "disk"


JVM_RESERVE = 1_000
"""Maps and descriptors that a broker needs in addition to those of its store."""
UNITS_PER_SECOND = 500_000
"""Rate of one core with few queues: a third of the measured rate, for slower disks."""
SECONDS_A_QUEUE = 50e-6
"""Time of one core to open, read and close a queue in the page cache."""
DRIVER_BYTES = 1 << 30
WORKER_BYTES = 512 << 20
"""A task of 5 M units: its units, keys and timestamps as arrays."""


@dataclass(frozen=True, slots=True)
class Extent:
    """Amount of data to move, as compared with the limits of the machine."""

    root: Path
    target: BulkBackend
    totals: Totals
    queue_files: int
    """Existing queue files."""
    other_files: int
    """Files of log and index."""
    log_bytes: int
    rocksdb_memory_bytes: int

    @property
    def footprint(self) -> DiskUse:
        """Return the space that the queues will take in the target."""
        return self.target.footprint(self.totals.sums)


def machine_findings(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Yield at most one finding per limit of the machine."""
    yield from map_count(extent, machine)
    yield from open_files(extent, machine)
    yield from inodes(extent, machine)
    yield from disk(extent, machine)
    yield from memory(extent, machine)
    yield duration(extent, machine)


def map_count(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Compare the files that a broker maps, now and afterwards, with ``vm.max_map_count``."""
    limit = machine.max_map_count()
    mapped = extent.footprint.mapped_files
    files = extent.queue_files if mapped is None else mapped
    needed = files + extent.other_files + JVM_RESERVE
    if limit is None or needed <= limit:
        return
    sentence = (
        "A broker maps every file: with the existing queue files, also during double write, it "
        "needs more maps than vm.max_map_count allows."
        if mapped is None
        else "A broker maps every queue file: it will need more maps than vm.max_map_count allows."
        " Raise it (sysctl vm.max_map_count)."
    )
    yield finding(
        MachineLimit.MAP_COUNT, Severity.WARN if mapped is None else Severity.REFUSE, sentence,
        queueFiles=files, otherFiles=extent.other_files, reserve=JVM_RESERVE, needed=needed,
        limit=limit, queueFilesThatFit=max(limit - extent.other_files - JVM_RESERVE, 0),
    ).at("vm.max_map_count")  # fmt: skip


def open_files(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Compare the descriptors that a broker will need, one per file, with the limits."""
    soft, hard = machine.open_files()
    tables, files = extent.footprint.tables, extent.footprint.mapped_files or 0
    needed = files + tables + extent.other_files + JVM_RESERVE
    if hard is not None and needed > hard:
        severity, which = Severity.REFUSE, "hard limit (ulimit -Hn) allows: raise it."
    elif soft is not None and needed > soft:
        severity = Severity.WARN
        which = "soft limit (ulimit -n) allows: raise the limit where the broker is started."
    else:
        return
    yield finding(
        MachineLimit.OPEN_FILES, severity, f"A broker will need more open files than the {which}",
        queueFiles=files, tables=tables, otherFiles=extent.other_files,
        needed=needed, soft=soft, hard=hard,
    ).at("ulimit -n")  # fmt: skip


def inodes(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Compare the number of new files and folders with the free inodes of the file system."""
    facts = machine.disk(extent.root)
    needed = extent.footprint.entries
    if facts is None or facts.free_inodes is None or needed <= facts.free_inodes:
        return
    sentence = "The file system has too few free inodes for the new files and folders: free some."
    yield finding(
        MachineLimit.INODES, Severity.REFUSE, sentence,
        needed=needed, free=facts.free_inodes,
    ).at(extent.root)  # fmt: skip


def disk(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Compare the size of one and of two copies with the free space."""
    facts = machine.disk(extent.root)
    if facts is None:
        return
    once, apparent = extent.footprint.disk_bytes, extent.footprint.apparent_bytes
    severity, sentence = Severity.INFO, "The disk has enough space for the copy and a second one."
    if facts.free_bytes < once:
        severity = Severity.REFUSE
        sentence = "The disk has too little space for the copy: free some."
    elif facts.free_bytes < 2 * once:
        severity = Severity.WARN
        sentence = (
            "The disk has enough space for the copy, but not for a second one, which repeated "
            "attempts and compactions need."
        )
    more = {} if apparent is None else {"apparentBytes": apparent}
    yield finding(
        MachineLimit.DISK, severity, sentence,
        bytes=once, withSecondCopy=2 * once, freeBytes=facts.free_bytes, **more,
    )  # fmt: skip


def memory(extent: Extent, machine: MachineLimits) -> Iterator[PreflightFinding]:
    """Compare the memory of a run, with one worker per core, with the available memory."""
    available = machine.memory_bytes()
    if available is None:
        return
    cores = machine.cores()
    needed = DRIVER_BYTES + cores * WORKER_BYTES + extent.rocksdb_memory_bytes
    severity, sentence = Severity.INFO, "There is enough memory for one worker per core."
    if needed > available:
        severity = Severity.WARN
        sentence = (
            "There is too little memory for one worker per core: use fewer (--master local[N])."
        )
    yield finding("memory", severity, sentence, bytes=needed, availableBytes=available, cores=cores)


def duration(extent: Extent, machine: MachineLimits) -> PreflightFinding:
    """Return an estimate of the duration of the move."""
    units, queues = extent.totals.units, extent.totals.queues
    return finding(
        "duration", Severity.INFO,
        "Rough estimate of the run time on one core with the queues in memory; logBytes of the log"
        " are read once for store timestamps.",
        units=units, queues=queues,
        seconds=round(units / UNITS_PER_SECOND + queues * SECONDS_A_QUEUE, 1),
        unitsPerSecond=UNITS_PER_SECOND, cores=machine.cores(),
        logBytes=extent.log_bytes if extent.target.keeps_timestamps else 0,
    )  # fmt: skip
