"""``python -m tools.bench.many_queues``: what many queues cost, a table.

Every row is a process of its own, beside its baseline: for dispatch RocksDB's C API, or one file,
with the same units; for opening an empty store.
"""

import sys

from rich.console import Console
from rich.table import Table

from cqstore.store.service.dispatching.replay import MAX_REPLAY_UNITS
from tools.bench.queues import measured

QUEUES = (1, 1_000, 100_000, 1_000_000)
PUT_QUEUES = (8, 10_000, 100_000, 1_000_000)
BACKENDS = (("rocksdb", "native"), ("rocksdb", "rocksdict"), ("file", "auto"))
FILES_AT_MOST = 100_000
"""A million queue files take four gigabytes and hours."""


def main() -> None:
    """Print how the backends do with many queues, beside a baseline without a store."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("measure", "queues", "here", "baseline", "ratio", "more")
    for queues in PUT_QUEUES:
        found = measured("puts", queues, 1_000_000)
        rate = found.pop("puts/s")
        table.add_row("puts rocksdb, 1/s", f"{queues:,}", f"{rate:,.0f}", "", "", _rest(found))
    for name, engine in BACKENDS:
        for queues in QUEUES:
            if name == "file" and queues > FILES_AT_MOST:
                continue
            found = measured("dispatch", name, engine, queues, max(1_000_000, queues * 2), 65_536)
            here, raw = found.pop("units/s"), found.pop("raw units/s")
            label = f"dispatch {name} {engine}, units/s"
            table.add_row(label, f"{queues:,}", *_compared(here, raw), _rest(found))
    found = measured("dispatch", "rocksdb", "native", 100_000, 4_000_000, MAX_REPLAY_UNITS)
    here, raw = found.pop("units/s"), found.pop("raw units/s")
    label = "the same in a rebuild's batches"
    table.add_row(label, "100,000", *_compared(here, raw), _rest(found))
    for name in ("rocksdb", "file"):
        for queues in QUEUES[1:]:
            if name == "file" and queues > FILES_AT_MOST:
                continue
            found = measured("reopen", name, queues)
            here, raw = found.pop("open ms"), found.pop("empty store, ms")
            table.add_row(f"open {name}, ms", f"{queues:,}", *_compared(here, raw), _rest(found))
    for name, engine in BACKENDS:
        found = measured("scans", name, engine, 1_000, 1_000_000, 50_000)
        label = f"32-unit scans {name} {engine}, 1/s"
        table.add_row(label, "1,000", f"{found['scans/s']:,.0f}", "", "", "")
    for style, label in ((1, "universal"), (0, "levelled")):
        found = measured("expiry", style, 10_000, 10_000_000)
        here = found.pop("expiry units/s")
        row = f"expiry of half of 10 M, {label}, units/s"
        table.add_row(row, "10,000", f"{here:,.0f}", "", "", _rest(found))
    console.print(table)


def _compared(here: float, raw: float) -> tuple[str, str, str]:
    return f"{here:,.0f}", f"{raw:,.0f}", f"{here / raw:.2f}"


def _rest(found: dict[str, float]) -> str:
    return ", ".join(f"{label} {value:,.0f}" for label, value in found.items())


if __name__ == "__main__":
    main()
