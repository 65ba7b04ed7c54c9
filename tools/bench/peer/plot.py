"""The plots of a report: how many times ahead each row is, and what many queues cost."""

import re
from itertools import product
from pathlib import Path

from tools.bench.peer.measured import Measured, Published, Report, Spread
from tools.bench.peer.sides import OURS, SIDES

_COLOURS = {"file": "tab:blue", "rocksdb": "tab:orange"}
_NAMES = {"file": "files", "rocksdb": "RocksDB"}
_PANELS = {
    "open": "opening after a clean stop: ms",
    "disk a queue of 2 units": "disk of the queues: bytes a queue",
}
_MACHINE = ("processor", "memory")
_ROW_INCHES = 0.2
_APART = 0.17


def draw(report: Report, path: Path) -> None:
    """Draw the ratio of each row, by processor time where there is one, else by wall time."""
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415

    names = list(dict.fromkeys(row.name for row in report.rows if shown(row)))
    size = (9, 1.2 + _ROW_INCHES * len(names))
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "cqstore", "font.size": 8}):
        figure, axis = plt.subplots(figsize=size, constrained_layout=True)
        for backend, colour in _COLOURS.items():
            rows = [row for row in report.rows if row.backend == backend and shown(row)]
            at = [
                names.index(row.name) + _APART * (1 if backend == "rocksdb" else -1) for row in rows
            ]
            spreads = [spread for row in rows if (spread := shown(row))]
            errors = [
                [each.median - each.low for each in spreads],
                [each.high - each.median for each in spreads],
            ]
            axis.errorbar(
                [each.median for each in spreads], at, xerr=errors, fmt="o", markersize=4,
                color=colour, label=_NAMES[backend], capsize=2, linewidth=1,
            )  # fmt: skip
        axis.axvline(1, color="black", linewidth=1)
        axis.set(
            xscale="log", xlabel="times ahead of RocketMQ (left of 1: behind)",
            title="processor time, and wall time or size where there is none",
            yticks=range(len(names)), yticklabels=names,
        )  # fmt: skip
        axis.invert_yaxis()
        axis.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.grid(visible=True, axis="both", which="major", alpha=0.3)
        axis.legend(loc="lower right")
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def shown(row: Measured | Published) -> Spread | None:
    """Return what the plot shows of a row; nothing if a side has no figure."""
    return row.cpu_ratio() or row.ratio()


def draw_queues(report: Report, path: Path) -> None:
    """Draw openings and disk of both sides over the number of queues, if any were measured.

    The picture is shown without its table: it has units, shape of the queues and machine itself.
    """
    import matplotlib as mpl  # noqa: PLC0415 - only here

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator  # noqa: PLC0415

    works = [
        work
        for work in _PANELS
        if any(over_queues(report, work, *at) for at in product(_COLOURS, SIDES))
    ]
    if not works:
        return
    with mpl.rc_context({"svg.fonttype": "none", "font.size": 10}):
        size = (4.5 * len(works), 3.6)
        figure, axes = plt.subplots(
            1, len(works), figsize=size, constrained_layout=True, squeeze=False
        )
        for axis, work in zip(axes[0], works, strict=True):
            for side, (backend, colour) in product(SIDES, _COLOURS.items()):
                medians = over_queues(report, work, backend, side)
                axis.plot(
                    list(medians), list(medians.values()), marker="o", markersize=4, color=colour,
                    linestyle="-" if side == OURS else ":", label=f"{side}, {_NAMES[backend]}",
                )  # fmt: skip
            axis.set(xscale="log", yscale="log", xlabel="queues", title=_PANELS[work])
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_minor_locator(NullLocator())
            for each in (axis.xaxis, axis.yaxis):
                each.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
            axis.grid(visible=True, which="major", alpha=0.3)
        axes[0][-1].legend()
        machine = [value for name in _MACHINE if (value := report.machine.get(name))]
        figure.suptitle(", ".join(("queues of 2 messages; medians", *machine)), fontsize=8)
        figure.savefig(path, dpi=120)
        plt.close(figure)


def over_queues(report: Report, work: str, backend: str, side: str) -> dict[int, float]:
    """Return the median of each number of queues that ``work`` was measured with."""
    found = dict[int, float]()
    for row in report.rows:
        name = re.fullmatch(rf"{work}, ([\d,]+) queues", row.name)
        if name and row.backend == backend and (values := row.values(side)):
            found[int(name[1].replace(",", ""))] = Spread.of(values).median
    return dict(sorted(found.items()))
