"""The table of a report, in Markdown, and its place in a page."""

from pathlib import Path

from bench.peer.measured import KINDS, Measured, Report, Spread
from bench.peer.sides import OURS, THEIRS

HEAD = (
    "work", "queues in", "cqstore", "RocketMQ", "ahead, wall", "CPU µs", "RocketMQ's", "ahead, CPU",
)  # fmt: skip
BEGIN, END = "<!-- bench-peer: begin -->", "<!-- bench-peer: end -->"
_BACKENDS = {"file": "files", "rocksdb": "RocksDB"}
_WIDTH = 110
_THOUSAND, _TEN = 1_000, 10


def table(report: Report) -> str:
    """Return the rows, with medians, and the ends of all rounds in brackets."""
    lines = [HEAD, ("---", "---", *["---:"] * (len(HEAD) - 2))]
    lines += [_cells(row) for row in report.rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + "\n"


def _cells(row: Measured) -> tuple[str, ...]:
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
    return f"{_number(median)}{space}{unit} ({_number(low)} to {_number(high)})"


def _ratio(spread: Spread | None) -> str:
    """Return it; what is behind stands out."""
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
    """Return what the table was measured on, how, who else was at work, and what is to be noted."""
    facts = "; ".join(f"{name}: {value}" for name, value in report.machine.items())
    others = Spread.of([cores for row in report.rows for cores in row.others] or [0.0])
    beside = (
        f"Others used {others.median:.1f} cores meanwhile (median of the rounds; at most"
        f" {others.high:.1f})."
    )
    told = [f"{facts}. {report.settings} {beside}"]
    for side, fault in sorted({each for row in report.rows for each in row.failed.items()}):
        told.append(f"“cannot”: {side} {fault}.")
    for note in dict.fromkeys(row.note for row in report.rows if row.note):
        names = dict.fromkeys(row.name for row in report.rows if row.note == note)
        told.append(f"{'; '.join(names)}: {note}.")
    return "\n\n".join(wrapped(each) for each in told) + "\n"


def wrapped(text: str) -> str:
    """Return lines of a page's width."""
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDTH:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return "\n".join(lines)


def section(report: Report, picture: str) -> str:
    """Return all that goes between the marks of a page."""
    shown = f"![How many times ahead of RocketMQ each row is]({picture})"
    return f"{words(report)}\n{table(report)}\n{shown}\n"


def publish(page: Path, text: str) -> None:
    """Put ``text`` between the marks of ``page``.

    Raises:
        ValueError: it does not have both marks, once.
    """
    known = page.read_text(encoding="utf-8")
    if known.count(BEGIN) != 1 or known.count(END) != 1:
        raise ValueError(f"{page} does not have “{BEGIN}” and “{END}” once")
    before, rest = known.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
