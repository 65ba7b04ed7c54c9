"""Hooks of MkDocs: the pages are written for a reader of the repository, and become a site.

A link that leads out of ``docs`` leads to a copy below ``project`` in the site. Anchors of headings
are those of the repository's pages, and so are pipes within code in a table.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
_DOCS = "docs/"
_OTHERS = "project/"
_CODE = r"^ *(?P<fence>`{3,}).*?^ *(?P=fence) *$|(?P<ticks>`+)[^`].*?(?P=ticks)(?!`)"
_LINK = re.compile(rf"{_CODE}|\]\((?P<link>[^)\s]+)\)", re.MULTILINE | re.DOTALL)
_SCHEME = re.compile(r"[a-z]+:|/")
_CELL_CODE = re.compile(r"`[^`]*`")
_BOOSTS = {"error-messages.md": 30, "repair.md": 20, "decisions": 0.1, "api": 0.3}
"""Who searches for the text of a message wants its page, not the record of a decision."""


def on_config(config: MkDocsConfig) -> None:
    """Have anchors made as the repository's pages have them."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = anchor


def on_files(files: Files, *, config: MkDocsConfig) -> None:
    """Add what lies outside of ``docs`` and is linked to, and the pages at the top."""
    pages = [_DOCS + file.src_uri for file in files.documentation_pages()]
    tops = {path.name for path in ROOT.glob("*.md")}
    linked = {target for page in [*pages, *tops] for target in targets(page)}
    outside = {name for name in linked if not name.startswith(_DOCS) and (ROOT / name).is_file()}
    for name in sorted(tops | outside):
        there = File.generated(
            config, in_site(name), abs_src_path=str(ROOT / name),
            inclusion=InclusionLevel.NOT_IN_NAV,
        )  # fmt: skip
        files.append(there)


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the page's text with links of the site, and set its rank in a search."""
    if boost := _BOOSTS.get(page.file.src_uri.partition("/")[0]):
        page.meta["search"] = {"boost": boost}
    return prepared(markdown, in_repository(page.file.src_uri))


def anchor(heading: str, separator: str = "-") -> str:
    """Return the name that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def in_site(path: str) -> str:
    """Return where a file of the repository is in the site."""
    return path.removeprefix(_DOCS) if path.startswith(_DOCS) else _OTHERS + path


def in_repository(path: str) -> str:
    """Return where a page of the site is in the repository."""
    return path.removeprefix(_OTHERS) if path.startswith(_OTHERS) else _DOCS + path


def target(link: str, page: str) -> str:
    """Return the file of the repository that a link of ``page`` leads to; empty: no file."""
    path = link.partition("#")[0]
    if not path or _SCHEME.match(link):
        return ""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    return f"{found}/README.md" if (ROOT / found).is_dir() else found


def targets(page: str) -> Iterator[str]:
    """Yield the files that the links of a page of the repository lead to."""
    text = (ROOT / page).read_text(encoding="utf-8")
    yield from (found for one in _LINK.finditer(text) if (found := target(one["link"] or "", page)))


def prepared(text: str, page: str) -> str:
    """Return the text of a page of the repository as the site's Markdown takes it."""

    def moved(one: re.Match[str]) -> str:
        found = target(one["link"] or "", page)
        if not found:
            return one[0]
        _, hash_sign, name = one["link"].partition("#")
        folder = posixpath.dirname(in_site(page))
        return f"]({posixpath.relpath(in_site(found), folder or '.')}{hash_sign}{name})"

    lines = _LINK.sub(moved, text).split("\n")
    return "\n".join(_with_bare_pipes(line) if line.startswith("|") else line for line in lines)


def _with_bare_pipes(row: str) -> str:
    """Return a row of a table whose code has its pipes unescaped: here no cell ends there."""
    return _CELL_CODE.sub(lambda code: code[0].replace("\\|", "|"), row)
