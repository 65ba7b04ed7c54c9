"""The documents, taken apart as far as a reader of GitHub's pages sees them."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for folder in (ROOT, ROOT / "docs", ROOT / "tests")
    for page in (folder.glob("*.md") if folder == ROOT else folder.rglob("*.md"))
)
_FENCE = re.compile(r"^( *)```[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)(?: {4}[^\n]*\n)+")
_SPAN = re.compile(r"`([^`]+)`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_CELLS = re.compile(r"(?<!\\)\|")


def prose(page: Path) -> str:
    """Return the text without its blocks of code, each line at its place."""
    text = page.read_text(encoding="utf-8")
    for block in (_FENCE, _INDENTED):
        text = block.sub(lambda found: "\n" * found[0].count("\n"), text)
    return text


def spans(page: Path) -> list[str]:
    """Return the pieces of code within the text; one that is wrapped is one line again."""
    return [" ".join(span.split()) for span in _SPAN.findall(prose(page))]


def code_lines(page: Path) -> list[str]:
    """Return the lines of all blocks of code, without the prompt of a shell."""
    text = page.read_text(encoding="utf-8")
    blocks = [found[2] for found in _FENCE.finditer(text)]
    blocks += [found[0] for found in _INDENTED.finditer(_FENCE.sub("", text))]
    return [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]


def links(page: Path) -> list[str]:
    """Return where the links and pictures within the project lead, as they are written."""
    found = _LINK.findall(_SPAN.sub("", prose(page)))
    return [link for link in found if not link.startswith(("http:", "https:"))]


def anchors(page: Path) -> set[str]:
    """Return the names that GitHub gives to the headings."""
    headings = _HEADING.findall(prose(page))
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in headings}


def tables(page: Path) -> Iterator[tuple[int, list[int]]]:
    """Yield of each row of lines that begin with ``|`` its first line and each line's cells.

    A line between the head and the rest that does not separate them counts as without cells.
    """
    at, rows = 0, list[str]()
    for number, line in enumerate([*prose(page).splitlines(), ""], 1):
        if line.startswith("|"):
            at, rows = (at, [*rows, line]) if rows else (number, [line])
        elif rows:
            separates = len(rows) > 1 and re.fullmatch(r"[|:\- ]+", rows[1])
            yield at, [len(_CELLS.findall(row)) if separates else 0 for row in rows]
            rows = []


def table_cells(page: Path) -> Iterator[list[list[str]]]:
    """Yield the cells of each table, its head first and without what separates the two."""
    lines = prose(page).splitlines()
    for at, rows in tables(page):
        head, _, *rest = lines[at - 1 : at - 1 + len(rows)]
        yield [[cell.strip() for cell in _CELLS.split(line)[1:-1]] for line in (head, *rest)]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Yield the fenced blocks of a page in their order: language and text."""
    for found in _FENCED.finditer(page.read_text(encoding="utf-8")):
        yield found[1], found[2]


def typed(console: str) -> Iterator[tuple[str, str]]:
    """Yield of a block ``console`` each command and what is printed below it."""
    for part in re.split(r"^\$ ", console, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def is_printed(shown: str, printed: str) -> bool:
    """Return whether ``printed`` is what a page shows.

    A line ``…`` of the page stands for any lines, ``…`` within one for any text. Spaces at the end
    of a line do not count, nor how many there are between the columns of a table.
    """
    pattern = "".join(
        r"(?:.*\n)*?" if line == "…" else ".*?".join(map(re.escape, line.split("…"))) + r" *\n"
        for line in _narrow(shown).splitlines()
    )
    return re.fullmatch(pattern, _narrow(printed)) is not None


def _narrow(text: str) -> str:
    return re.sub(" {2,}", "  ", text)
