"""``python -m bench.many_queues``: what many queues cost, a table; ``--plot PNG`` draws it.

Every row is a process of its own, beside its baseline: for dispatch RocksDB's C API, or one file,
with the same units; for opening an empty store.
"""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.queues import measured
from store.service.dispatching.replay import MAX_REPLAY_UNITS

QUEUES = (1, 1_000, 100_000, 1_000_000)
BACKENDS = (("rocksdb", "native"), ("rocksdb", "rocksdict"), ("file", "auto"))
FILES_AT_MOST = 100_000
"""A million queue files take four gigabytes and hours."""


def main(words: list[str]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 160)
    if words[:1] == ["--plot"]:
        plot(Path(words[1]))
        return
    table = Table("measure", "queues", "here", "baseline", "ratio", "more")
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


def plot(path: Path) -> None:
    """Draw open time and disk against the number of queues, both backends."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    counts = {"rocksdb": (1_000, 10_000, 100_000, 1_000_000), "file": (1_000, 10_000, 100_000)}
    names = {"rocksdb": "RocksDB", "file": "files"}
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), constrained_layout=True)
    for name, sizes in counts.items():
        found = [measured("reopen", name, queues) for queues in sizes]
        for axis, label in zip(axes, ("open ms", "disk B/queue"), strict=True):
            axis.plot(sizes, [row[label] for row in found], marker="o", label=names[name])
    titles = ("open after a clean stop, ms", "disk of the queues, bytes a queue")
    for axis, title in zip(axes, titles, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="queues", title=title)
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_minor_locator(NullLocator())
        for each in (axis.xaxis, axis.yaxis):
            each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axis.grid(visible=True, which="major", alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1:])
