"""A report as a run could leave it, made by hand."""

from tools.bench.peer.measured import Measured, Report
from tools.bench.peer.sides import OURS, THEIRS, Window


def put(seconds: float, cpu_seconds: float) -> Window:
    """Return a window of 1,000 puts."""
    return {"count": 1000, "seconds": seconds, "cpu_seconds": cpu_seconds}


def put_row() -> Measured:
    """Ours: 2, 1 and 4 ms for 1,000 puts; RocketMQ's: 4, 4 and 2 ms."""
    return Measured(
        name="put", backend="file", kind="rate",
        windows={
            OURS: [put(0.002, 0.003), put(0.001, 0.003), put(0.004, 0.003)],
            THEIRS: [put(0.004, 0.006), put(0.004, 0.0045), put(0.002, 0.009)],
        },
        others=[0.0, 0.5, 1.5],
    )  # fmt: skip


def report() -> Report:
    """Return what was measured as a run."""
    return Report(machine={"processor": "P, 2 cores"}, settings="Three rounds.", rows=[*measured()])


def measured() -> list[Measured]:
    """Return four rows: ahead, behind, without processor time, and one that a side cannot do."""
    opened: Window = {"count": 1, "seconds": 0.25, "cpu_seconds": 0.1, "resident_bytes": 64 << 20}
    slower: Window = opened | {"seconds": 0.125, "cpu_seconds": 0.05, "resident_bytes": 320 << 20}
    opening = {OURS: [opened], THEIRS: [slower]}
    return [
        put_row(),
        Measured(name="open", backend="rocksdb", kind="each", windows=opening, others=[0.2]),
        Measured(name="memory", backend="rocksdb", kind="memory", windows=opening, others=[0.2]),
        Measured(
            name="replay", backend="file", kind="rate", windows={OURS: [put(0.5, 0.5)]}, others=[],
            failed={THEIRS: "has too few descriptors"}, note="one message is lost",
        ),
    ]  # fmt: skip


def openings() -> Report:
    """Return what was opened with queues in RocksDB: 1,000 by both, 100,000 by ours alone."""
    each: Window = {"count": 1, "seconds": 0.05, "cpu_seconds": 0.1}
    slower: Window = each | {"seconds": 0.06}
    theirs: Window = each | {"seconds": 0.5}
    rows = [
        Measured(
            name="open, 100,000 queues", backend="rocksdb", kind="each", others=[0.2],
            windows={OURS: [slower]}, failed={THEIRS: "has too few descriptors"},
        ),
        Measured(
            name="open, 1,000 queues", backend="rocksdb", kind="each", others=[0.2],
            windows={OURS: [each, slower, each], THEIRS: [theirs]},
        ),
    ]  # fmt: skip
    return Report(machine={"processor": "P, 2 cores"}, settings="Three rounds.", rows=rows)
