"""The table of a report, in Markdown."""

import re
import textwrap

from tools.bench.peer.measured import KINDS, Measured, Published, Report, Spread
from tools.bench.peer.sides import OURS, THEIRS

HEAD = (
    "work", "queues in", "cqstore", "RocketMQ", "ahead, wall", "CPU µs", "RocketMQ's", "ahead, CPU",
)  # fmt: skip
NOT_STEADY, EARLIER = "†", "‡"
_STEADY = re.compile(r"(?P<side>\w+) was not steady: .* took (?P<spread>[\d.]+) times the fastest")
"""What a row notes of such a side."""
_FIRST = re.compile(r"the first [\d,]+ of a process: .*")
_BACKENDS = {"file": "files", "rocksdb": "RocksDB"}
_WIDTH = 110
_THOUSAND, _TEN = 1_000, 10


def table(report: Report) -> str:
    """Return the rows, with medians, and the ends of all rounds in brackets."""
    lines = [HEAD, ("---", "---", *["---:"] * (len(HEAD) - 2))]
    lines += [cells(row) for row in report.rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def cells(row: Measured | Published) -> tuple[str, ...]:
    """Return one row, a cell a column of the head."""
    if isinstance(row, Published):
        return row.cells
    ours, theirs = row.cpu(OURS), row.cpu(THEIRS)
    return (
        row.name, _BACKENDS[row.backend], _value(row, OURS), _value(row, THEIRS),
        _ratio(row.ratio()),
        _number(Spread.of(ours).median) if ours else "",
        _number(Spread.of(theirs).median) if theirs else "", _ratio(row.cpu_ratio()),
    )  # fmt: skip


def _value(row: Measured, side: str) -> str:
    values = row.values(side)
    if not values:
        return "cannot" if side in row.failed else ""
    unit = KINDS[row.kind].unit
    space = "" if unit.startswith("/") else " "
    median, low, high = Spread.of(values)
    mark = f" {NOT_STEADY}" if side in _unsteady(row) else ""
    return f"{_number(median)}{space}{unit} ({_number(low)} to {_number(high)}){mark}"


def _ratio(spread: Spread | None) -> str:
    """Return it; a ratio that loses is emphasised."""
    if spread is None:
        return ""
    text = f"{_times(spread.median)} ({_times(spread.low)} to {_times(spread.high)})"
    return f"**{text}**" if round(spread.median, 2) < 1 else text


def _times(ratio: float) -> str:
    return f"{ratio:.2f}" if ratio < _TEN else f"{ratio:,.0f}"


def _number(value: float) -> str:
    """Return three digits of it, no more: the rest is noise."""
    if value >= _THOUSAND:
        digits = len(str(int(value))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def words(report: Report) -> str:
    """Return what the table was measured on, how, what else ran, and what its signs mean."""
    facts = "; ".join(f"{name}: {value}" for name, value in report.machine.items())
    others = Spread.of([cores for row in report.rows for cores in row.others] or [0.0])
    beside = (
        f"Other processes used {others.median:.1f} cores (median of the rounds; at most"
        f" {others.high:.1f})."
    )
    paragraphs = [f"{facts}. {report.settings} {beside}"]
    spreads = [spread for row in report.rows for spread in _unsteady(row).values()]
    if spreads or any(NOT_STEADY in cell for row in report.rows for cell in cells(row)):
        apart = (
            f"; its slowest last window took up to {max(spreads):.2f} times as long as its fastest"
            if spreads else ""
        )  # fmt: skip
        paragraphs.append(f"{NOT_STEADY}: this side was not steady when its warm-up ended{apart}.")
    if any(isinstance(row, Published) for row in report.rows):
        paragraphs.append(
            f"{EARLIER}: from an earlier run of the same kind, on the same kind of machine."
        )
    for side, fault in sorted({each for row in report.rows for each in row.failed.items()}):
        paragraphs.append(f"“cannot”: {side} {fault}.")
    return "\n\n".join(wrapped(each) for each in paragraphs) + "\n"


def row_notes(report: Report) -> str:
    """Return the notes of rows as a list; rows with the same note share an item."""
    noted = dict[str, list[str]]()
    for row in report.rows:
        if note := "; ".join(each for each in _notes(row) if not _STEADY.fullmatch(each)):
            noted.setdefault(note, []).append(_FIRST.sub("the first … of a process", row.name))
    notes = [f"{'; '.join(dict.fromkeys(names))}: {note}." for note, names in noted.items()]
    return "".join(f"{wrapped(each, '- ')}\n" for each in notes)


def _notes(row: Measured | Published) -> list[str]:
    return row.note.split("; ") if row.note else []


def _unsteady(row: Measured | Published) -> dict[str, float]:
    """Return the sides that were not steady, and how far their last windows were apart."""
    found = map(_STEADY.fullmatch, _notes(row))
    return {each["side"]: float(each["spread"]) for each in found if each}


def published(page: str) -> list[Published]:
    """Return the rows of the table in a page, each marked as one of an earlier run."""
    backends = {word: backend for backend, word in _BACKENDS.items()}
    rows, in_table = list[Published](), False
    for line in page.split("\n"):
        row_cells = tuple(cell.strip() for cell in line[1:-1].split("|")) if line[:1] == "|" else ()
        if in_table and row_cells and row_cells[1] in backends:
            name, backend, ours, *rest = row_cells
            if ours and not ours.endswith(EARLIER):
                ours = f"{ours} {EARLIER}"
            rows.append(Published(cells=(name, backend, ours, *rest), backend=backends[backend]))
        in_table = row_cells == HEAD or (in_table and bool(row_cells))
    return rows


def wrapped(text: str, mark: str = "") -> str:
    """Return lines of a page's width, the first after ``mark``."""
    return textwrap.fill(
        text, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def section(report: Report, picture: str) -> str:
    """Return all that goes between the marks of a page."""
    shown = f"![How many times ahead of RocketMQ each row is]({picture})"
    return f"{words(report)}\n{table(report)}\n{row_notes(report)}\n{shown}\n"
