"""The plot of a report: how many times ahead each row is, a line a row."""

from pathlib import Path

from bench.peer.measured import Measured, Report, Spread

_COLOURS = {"file": "tab:blue", "rocksdb": "tab:orange"}
_NAMES = {"file": "files", "rocksdb": "RocksDB"}
_ROW_INCHES = 0.2
_APART = 0.17


def draw(report: Report, path: Path) -> None:
    """Draw the ratio of each row, by processor time where it is told, else by wall time."""
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


def shown(row: Measured) -> Spread | None:
    """Return what the plot shows of a row; nothing if a side has no figure."""
    return row.cpu_ratio() or row.ratio()
