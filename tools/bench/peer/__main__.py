"""``tools.bench.peer [--quick | --publish] [--add] [WORD …]``: rows whose names hold a word.

Each side is warmed until three windows in a row are alike, then the rounds begin. Leaves
``figures.json`` (all windows), ``table.md`` and plots in ``build/peer``; with ``--publish`` those
of a full run go into ``docs``, its medians into the tables there and in the README that repeat
some. ``--add`` keeps the other rows of the last run, so one that was cut short is completed.
Of rows that the run does not have the published ones stay, with a mark.
``--again`` does it all with the figures of the last run, and measures nothing. Java 17 and Maven
are needed, and up to 20 GB below ``TMPDIR``.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from tools.bench.peer.machine import machine_facts
from tools.bench.peer.measured import Measured, Report
from tools.bench.peer.pages import publish
from tools.bench.peer.plot import draw, draw_queues
from tools.bench.peer.rows import AnySession, all_sessions, in_order
from tools.bench.peer.sessions import UnequalError
from tools.bench.peer.sides import THEIRS, SideFailedError, Sides
from tools.bench.peer.table import published, row_notes, table, words

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "build" / "peer"
README, PAGE = ROOT / "README.md", ROOT / "docs" / "performance.md"
PICTURE, QUEUES = ROOT / "docs" / "peer.svg", ROOT / "docs" / "queues.png"
QUICK_ROUNDS, ROUNDS = 3, 5


def main(arguments: Sequence[str]) -> int:
    """Measure and print; 1 if a row could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m tools.bench.peer")
    parser.add_argument("words", nargs="*", metavar="WORD", help="rows whose names hold one")
    parser.add_argument("--quick", action="store_true", help="a sixth of the time")
    parser.add_argument("--publish", action="store_true", help="into the pages too")
    parser.add_argument("--add", action="store_true", help="the other rows stay as they were")
    parser.add_argument("--again", action="store_true", help="measure nothing, print the last run")
    options = parser.parse_args(arguments)
    if options.quick and options.publish:
        parser.error("--publish takes a full run: a quick one has too little time to be warm")
    console = Console(width=None if sys.stdout.isatty() else 200)
    BUILT.mkdir(parents=True, exist_ok=True)
    faults: list[str] = []
    if options.again:
        report = Report.load(BUILT / "figures.json")
    else:
        known = Report.load(BUILT / "figures.json") if options.add else None
        report, faults = measure(options.words, quick=options.quick, console=console, known=known)
    if options.publish:
        known_rows = published(PAGE.read_text(encoding="utf-8"))
        rows = in_order(report.with_published(known_rows).rows, quick=report.quick)
        report = report.model_copy(update={"rows": rows})
    report_all(report, console)
    if options.publish and report.quick:
        faults.append("the last run was a quick one, and is not published")
    elif options.publish:
        faults += publish_all(report)
    for fault in faults:
        console.print(fault, style="red", markup=False)
    return 1 if faults else 0


def measure(
    wanted: Sequence[str], *, quick: bool, console: Console, known: Report | None
) -> tuple[Report, list[str]]:
    """Measure the rows; what was measured is saved after each session.

    Rows of ``known``, an earlier run, stay where they are not measured again.
    """
    rounds = QUICK_ROUNDS if quick else ROUNDS
    how = (
        f"{'A quick run' if quick else 'A run'} of {rounds} rounds; the sides take turns. A"
        " side is warm when three windows in a row differ by at most 5 %."
    )
    report, faults = Report(machine=machine_facts(), settings=how, quick=quick), list[str]()
    if known is not None:
        if known.model_copy(update={"rows": []}) != report:
            return known, ["the last run was another kind of run, or on another machine"]
        report = known
    with tempfile.TemporaryDirectory(prefix="cqstore-peer-") as work:
        sides = Sides(Path(work))
        for session in all_sessions(quick=quick):
            names = {name for name in session.figures if is_wanted(name, session, wanted)}
            if not names:
                continue
            console.print(f"… {session.backend}: {', '.join(sorted(names))}", style="dim")
            try:
                for row in session.run(sides, rounds, names):
                    report = report.with_row(row)
                    console.print(short(row), markup=False)
            except (SideFailedError, UnequalError) as exc:
                faults.append(str(exc))
                console.print(str(exc), style="red", markup=False)
            report.rows = in_order(report.rows, quick=quick)
            report.save(BUILT / "figures.json")
    return report, faults


def is_wanted(name: str, session: AnySession, wanted: Sequence[str]) -> bool:
    """Return whether the name, or the backend, holds one of the words; without words all do."""
    return not wanted or any(word in f"{name} {session.backend}" for word in wanted)


def short(row: Measured) -> str:
    """Return what is printed while the rest is measured."""
    ratio, cpu = row.ratio(), row.cpu_ratio()
    parts = [f"{ratio.median:.2f} by wall" if ratio else f"{THEIRS} cannot"]
    parts += [f"{cpu.median:.2f} by CPU"] if cpu else []
    return f"  {row.name}, {row.backend}: {', '.join(parts)}"


def report_all(report: Report, console: Console) -> None:
    """Write table and plots, and print the table."""
    text = f"{words(report)}\n{table(report)}\n{row_notes(report)}"
    (BUILT / "table.md").write_text(text, encoding="utf-8")
    draw(report, BUILT / "plot.svg")
    (BUILT / QUEUES.name).unlink(missing_ok=True)
    draw_queues(report, BUILT / QUEUES.name)
    console.print(text, markup=False, soft_wrap=True)


def publish_all(report: Report) -> list[str]:
    """Put table, medians and plots into the pages; return why that could not be."""
    try:
        publish(PAGE, README, report, PICTURE.name)
    except ValueError as exc:
        return [f"nothing is published: {exc}"]
    shutil.copyfile(BUILT / "plot.svg", PICTURE)
    if (BUILT / QUEUES.name).exists():
        shutil.copyfile(BUILT / QUEUES.name, QUEUES)
    return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
