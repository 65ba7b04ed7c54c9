"""The documents lead nowhere that is not there: links, paths, modules, tests, commands, options."""

import re
import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from cqstore.store.service.opening.installed_hooks import DISPATCHERS, PUT_HOOKS
from tests.kit.command_tree import all_options, strange_words
from tests.kit.pages import PAGES, ROOT, anchors, code_lines, links, prose, spans, tables
from tests.kit.product_tree import LINKED, PRODUCT

MAX_COLUMNS = 110
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ENTRY_POINTS = {*PROJECT["project"]["entry-points"], PUT_HOOKS, DISPATCHERS}
FOLDERS = (*PRODUCT, "tests", "tools")
PACKAGES = "cqstore|tests|tools"
STORE_FOLDER = "cqstore"
"""A package, and what every store calls the folder of its own files."""
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_there_are_pages() -> None:
    names = {page.name for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "design.md", "0083-one-import-name.md"} <= names


@every_page
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            lost.append(link)
    assert lost == []


@every_page
def test_paths_modules_and_tests_exist(page: Path) -> None:
    lost = []
    for span in spans(page):
        if re.fullmatch(
            rf"(?!{STORE_FOLDER}/[\w/-]+(\.npz|/plan\.json)?$)(?:{'|'.join(FOLDERS)}|docs)/[\w./-]+",
            span,
        ):
            lost += [] if (ROOT / span).exists() else [span]
        elif re.fullmatch(r"test_\w+\.py", span):
            lost += [] if any((ROOT / "tests").rglob(span)) else [span]
        elif span not in ENTRY_POINTS and re.fullmatch(rf"(?:{PACKAGES})(?:\.\w+)+", span):
            lost += [] if _is_there(span) else [span]
        elif re.fullmatch(rf"(?:{'|'.join(LINKED)})(?:\.\w+)+", span):
            lost += [span] if _is_there(f"cqstore.{span}") else []
    assert lost == []


def _is_there(name: str) -> bool:
    """Return whether a module, or a name in one, is there."""
    module, _, attribute = name.rpartition(".")
    try:
        found = import_module(module)
    except ModuleNotFoundError:
        return False
    return hasattr(found, attribute) or find_spec(name) is not None


@every_page
def test_tables_have_a_head_and_as_many_cells_in_every_row(page: Path) -> None:
    assert [at for at, cells in tables(page) if len(set(cells)) > 1 or not cells[0]] == []


@every_page
def test_lines_of_text_are_short_and_no_conflict_is_left(page: Path) -> None:
    lines = enumerate(prose(page).splitlines(), 1)
    long = [at for at, line in lines if len(line) > MAX_COLUMNS and not line.startswith("|")]
    assert long == []
    assert (
        re.search(r"^(?:<{7}|={7}|>{7})( |$)", page.read_text(encoding="utf-8"), re.MULTILINE)
        is None
    )


@every_page
def test_commands_are_those_that_there_are(page: Path) -> None:
    shown = [*spans(page), *(re.split(" {3,}", line)[0] for line in code_lines(page))]
    strange = {
        line: words
        for line in shown
        if line.startswith("cqstore ") and (words := strange_words(line))
    }
    assert strange == {}
    starts = {re.split(r"[=,:\s]", span)[0] for span in spans(page)}
    options = {start for start in starts if start.startswith("--")}
    assert options - all_options() == set()
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in shown:
        if (target := re.match(r"make ([a-z-]+)", line)) is not None:
            assert f"\n{target[1]}: " in targets
        if (module := re.match(r"python -m ([\w.]+)", line)) is not None:
            assert find_spec(module[1]) is not None


def test_every_dependency_has_its_reason() -> None:
    project = PROJECT["project"]
    extras = [name for extra in project["optional-dependencies"].values() for name in extra]
    wanted = {re.split(r"[^\w-]", name)[0] for name in [*project["dependencies"], *extras]}
    text = (ROOT / "docs" / "decisions" / "0002-dependencies.md").read_text(encoding="utf-8")
    assert sorted(name for name in wanted if not re.search(rf"\b{name}\b", text)) == []


def test_the_map_of_the_source_shows_rooms_that_there_are() -> None:
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    plan = text.split("## Map of the source")[1].split("\n## ")[0]
    shown = set(re.findall(r"\b(\w+)/(?!\w)", plan))
    rooms = {path.parent.name for name in FOLDERS for path in (ROOT / name).rglob("__init__.py")}
    assert {*FOLDERS} <= shown <= rooms


def _sources() -> list[str]:
    """Return the text of every module and stub."""
    sources = [path for name in FOLDERS for path in (ROOT / name).rglob("*.py*")]
    return [path.read_text(encoding="utf-8") for path in sources if path.suffix in {".py", ".pyi"}]


def test_the_classes_that_the_design_names_are_there() -> None:
    named = {
        span
        for span in spans(ROOT / "docs" / "design.md")
        if re.fullmatch(r"[A-Z][a-z]+[A-Za-z]+", span)
    }
    classes = set(re.findall(r"^class (\w+)", "\n".join(_sources()), re.MULTILINE))
    assert {"Appender", "RunningState", "QueueMend"} <= named
    assert named - classes == set()


def test_the_methods_that_the_design_names_are_there() -> None:
    named = [
        span.split(".")
        for span in spans(ROOT / "docs" / "design.md")
        if re.fullmatch(r"[A-Z]\w+\.\w+", span)
    ]
    texts = _sources()
    assert ["Putter", "put"] in named
    assert [
        f"{owner}.{name}"
        for owner, name in named
        if not any(
            re.search(rf"^class {owner}\b", text, re.MULTILINE)
            and re.search(rf"def {name}\(|self\.{name}\b", text)
            for text in texts
        )
    ] == []
