"""``python -m bench.peer [--quick | --publish] [WORD …]``: the rows whose names hold a word.

Each side is warmed until three windows in a row are alike, then the rounds begin. Leaves
``figures.json`` (all windows), ``table.md`` and ``plot.svg`` in ``build/peer``; with ``--publish``
table and plot of a full run go into ``docs`` too. ``--again`` makes both of the figures of the last
run, and measures nothing. Java 17 and Maven are needed, and up to 20 GB below ``TMPDIR``.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bench.peer.machine import machine_facts
from bench.peer.measured import Measured, Report
from bench.peer.plot import draw
from bench.peer.rows import AnySession, all_sessions
from bench.peer.sessions import UnequalError
from bench.peer.sides import THEIRS, SideFailedError, Sides
from bench.peer.table import publish, section, table, words

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "peer"
PAGE, PICTURE = ROOT / "docs" / "performance.md", ROOT / "docs" / "peer.svg"
QUICK_ROUNDS, ROUNDS = 3, 5


def main(arguments: Sequence[str]) -> int:
    """Measure and tell; 1 if a row could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.peer")
    parser.add_argument("words", nargs="*", metavar="WORD", help="rows whose names hold one")
    parser.add_argument("--quick", action="store_true", help="a sixth of the time")
    parser.add_argument("--publish", action="store_true", help="into docs/performance.md too")
    parser.add_argument("--again", action="store_true", help="measure nothing, tell the last run")
    asked = parser.parse_args(arguments)
    if asked.quick and asked.publish:
        parser.error("--publish takes a full run: a quick one has too little time to be warm")
    console = Console(width=None if sys.stdout.isatty() else 200)
    BUILT.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    if asked.again:
        report = Report.load(BUILT / "figures.json")
    else:
        report, faults = measure(asked.words, quick=asked.quick, console=console)
    report_all(report, console)
    if asked.publish and report.quick:
        faults.append("the last run was a quick one, and is not published")
    elif asked.publish:
        shutil.copyfile(BUILT / "plot.svg", PICTURE)
        publish(PAGE, section(report, PICTURE.name))
    for fault in faults:
        console.print(fault, style="red", markup=False)
    return 1 if faults else 0


def measure(wanted: Sequence[str], *, quick: bool, console: Console) -> tuple[Report, list[str]]:
    """Measure the rows; what was measured is saved after each session."""
    rounds = QUICK_ROUNDS if quick else ROUNDS
    how = (
        f"{'A quick run' if quick else 'A run'} of {rounds} rounds, the sides in turn, each warm:"
        " three windows in a row alike within 5 %."
    )
    report, faults = Report(machine=machine_facts(), settings=how, quick=quick), []
    with tempfile.TemporaryDirectory(prefix="cqstore-peer-") as work:
        sides = Sides(Path(work))
        for session in all_sessions(quick=quick):
            names = {name for name in session.figures if is_wanted(name, session, wanted)}
            if not names:
                continue
            console.print(f"… {session.backend}: {', '.join(sorted(names))}", style="dim")
            try:
                for row in session.run(sides, rounds, names):
                    report.rows.append(row)
                    console.print(short(row), markup=False)
            except (SideFailedError, UnequalError) as exc:
                faults.append(str(exc))
                console.print(str(exc), style="red", markup=False)
            report.save(BUILT / "figures.json")
    return report, faults


def is_wanted(name: str, session: AnySession, wanted: Sequence[str]) -> bool:
    """Return whether the name, or the backend, holds one of the words; without words all do."""
    return not wanted or any(word in f"{name} {session.backend}" for word in wanted)


def short(row: Measured) -> str:
    """Return what is told while the rest is measured."""
    ratio, cpu = row.ratio(), row.cpu_ratio()
    parts = [f"{ratio.median:.2f} by wall" if ratio else f"{THEIRS} cannot"]
    parts += [f"{cpu.median:.2f} by CPU"] if cpu else []
    return f"  {row.name}, {row.backend}: {', '.join(parts)}"


def report_all(report: Report, console: Console) -> None:
    """Write table and plot, and print the table."""
    text = f"{words(report)}\n{table(report)}"
    (BUILT / "table.md").write_text(text, encoding="utf-8")
    draw(report, BUILT / "plot.svg")
    console.print(text, markup=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
