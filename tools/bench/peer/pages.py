"""What a full run changes in the pages: the table and its words, and medians that are repeated."""

from pathlib import Path

from tools.bench.peer.measured import Report
from tools.bench.peer.table import HEAD, cells, section

BEGIN, END = "<!-- bench-peer: begin -->", "<!-- bench-peer: end -->"
NOT_MEASURED = "not measured"
"""Where a figure of the run would be."""
_NAMED = list(HEAD[:2])
_AHEAD = "ahead"
_FILLED = {
    "cqstore": HEAD.index("cqstore"),
    "RocketMQ": HEAD.index("RocketMQ"),
    _AHEAD: HEAD.index("ahead, wall"),
}
"""The columns of a table that repeats medians, and where the published one has them."""


def publish(page: Path, readme: Path, report: Report, picture: str) -> None:
    """Put the table into ``page``, and medians into the tables of both; or change neither.

    Raises:
        ValueError: ``page`` has no place for the table, or ``readme`` has a row without figures.
    """
    whole = with_section(page.read_text(encoding="utf-8"), section(report, picture))
    texts = {page: repeated(whole, report, all_measured=False)}
    texts[readme] = repeated(readme.read_text(encoding="utf-8"), report, all_measured=True)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")


def with_section(known: str, text: str) -> str:
    """Return a page with ``text`` between its marks.

    Raises:
        ValueError: it does not have both marks, once.
    """
    if known.count(BEGIN) != 1 or known.count(END) != 1:
        raise ValueError(f"the page does not have “{BEGIN}” and “{END}” once")
    before, rest = known.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n{END}{after}"


def repeated(text: str, report: Report, *, all_measured: bool) -> str:
    """Return a page with the medians of ``report`` in each table that repeats some.

    Its head begins with the work and its backend, and has a column ``ahead``. Columns with other
    names are left alone. A row that was not measured says so, unless all must be.

    Raises:
        ValueError: the report has no row of a name.
    """
    known = {row[:2]: row for row in map(cells, report.rows)}
    lines, head, missing = list[str](), list[str](), list[str]()
    for line in text.split("\n"):
        found = [cell.strip() for cell in line[1:-1].split("|")] if line.startswith("|") else []
        is_row = bool(found and head) and not found[0].startswith("---")
        if is_row and head[:2] == _NAMED and _AHEAD in head:
            row = known.get(tuple(found[:2]))
            missing += [f"“{found[0]}” with queues in {found[1]}"] if row is None else []
            lines.append(_filled(head, found, row))
        else:
            lines.append(line)
        head = (head or found) if found else []
    if missing and all_measured:
        raise ValueError(f"the run has no row {'; '.join(missing)}")
    return "\n".join(lines)


def _filled(head: list[str], known: list[str], row: tuple[str, ...] | None) -> str:
    """Return a line of a table, its figures those of ``row``."""
    figures = {
        column: NOT_MEASURED if row is None else median(row[at]) for column, at in _FILLED.items()
    }
    filled = [figures.get(column, cell) for column, cell in zip(head, known, strict=True)]
    return f"| {' | '.join(filled)} |"


def median(cell: str) -> str:
    """Return a cell without the ends of its rounds; emphasis is kept."""
    first, ends, _ = cell.partition(" (")
    return f"{first}**" if ends and first.startswith("**") else first
