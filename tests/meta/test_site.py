"""The site has every page, in the order of its first one, and links that lead somewhere."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest

import cqstore
from tests.kit.pages import ROOT
from tests.kit.public_names import attributes_of

DOCS = ROOT / "docs"
PUBLIC = {*dir(cqstore)} - {"__version__"}
INDEX = DOCS / "index.md"
DECISIONS = DOCS / "decisions" / "README.md"
TOPS = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"}


def nav() -> list[str]:
    """Return the files that ``mkdocs.yml`` names, in their order."""
    text = (ROOT / "docs" / "mkdocs.yml").read_text(encoding="utf-8")
    listed = text.split("\nnav:\n")[1].split("\nnot_in_nav:")[0]
    return re.findall(r": ([\w/-]+\.md)$", listed, re.MULTILINE)


def test_every_page_is_reached_from_the_first_one_in_the_order_of_the_site() -> None:
    text = INDEX.read_text(encoding="utf-8").split("## All pages")[1]
    shown = re.findall(r"\]\(([\w./-]+\.md)\)", text)
    moved = [name.replace("../", "project/") for name in shown]
    assert ["index.md", *moved] == nav()
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    decisions = {name for name in pages if re.match(r"decisions/\d", name)}
    assert set(nav()) - {f"project/{name}" for name in TOPS} == pages - decisions


def test_every_decision_is_listed_once_by_its_title() -> None:
    text = " ".join(DECISIONS.read_text(encoding="utf-8").split())
    listed = re.findall(r"\[(\d+\. [^\]]+)\]\((\d[\w-]+\.md)\)", text)
    pages = sorted(DECISIONS.parent.glob("0*.md"))
    titles = [page.read_text(encoding="utf-8").split("\n")[0].removeprefix("# ") for page in pages]
    wanted = zip(titles, (page.name for page in pages), strict=True)
    assert sorted(listed, key=lambda each: each[1]) == [*wanted]


def test_every_name_that_stays_is_on_one_page() -> None:
    texts = [page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md")]
    shown = re.findall(r"^::: cqstore\.(\w+)$", "\n".join(texts), re.MULTILINE)
    assert sorted(shown) == sorted(PUBLIC)


def test_every_method_of_a_store_is_on_its_page() -> None:
    listed = re.findall(r"^ +- (\w+)$", (DOCS / "api" / "store.md").read_text(), re.MULTILINE)
    public = {name for name in dir(cqstore.MessageStore) if not name.startswith("_")}
    attributes = attributes_of(cqstore.MessageStore)
    assert {"config", "metrics", "report", "root"} <= attributes
    assert sorted(listed) == sorted(public | attributes)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("mkdocs")
    spec = spec_from_file_location("site_links", DOCS / "site" / "links.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCHEMA = "cqstore/ab/results/result.schema.json"
OUTSIDE = "[a](#limits) [b](https://x/y) [c](mailto:z)"
MOVED = [
    ("docs/design.md", "[a](limits.md#x)", "[a](limits.md#x)"),
    ("docs/index.md", "[a](../README.md)", "[a](project/README.md)"),
    ("docs/ab.md", f"[a](../{SCHEMA})", f"[a](project/{SCHEMA})"),
    ("docs/decisions/0040-wheels.md", "[a](../releasing.md)", "[a](../releasing.md)"),
    ("README.md", "![a](docs/queues.png)", "![a](../queues.png)"),
    ("README.md", "[a](docs/decisions)", "[a](../decisions/README.md)"),
    ("README.md", "[a](SECURITY.md)", "[a](SECURITY.md)"),
    ("README.md", OUTSIDE, OUTSIDE),
    ("README.md", "`[a](docs/ab.md)`", "`[a](docs/ab.md)`"),
    ("README.md", "```\n[a](docs/ab.md)\n```\n", "```\n[a](docs/ab.md)\n```\n"),
    ("docs/ab.md", "| `a\\|b` | c \\| d |", "| `a|b` | c \\| d |"),
    ("docs/ab.md", "`a\\|b`", "`a\\|b`"),
]


@pytest.mark.parametrize(("page", "text", "there"), MOVED)
def test_links_of_the_repository_become_those_of_the_site(
    hooks: ModuleType, page: str, text: str, there: str
) -> None:
    assert hooks.prepared(text, page) == there
    assert hooks.in_repository(hooks.in_site(page)) == page


class Html(HTMLParser):
    """What a page of the site refers to, and what may be referred to in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif "src" in given or (tag == "link" and given.get("rel") not in {"canonical"}):
            self.loaded.append(given.get("src") or given.get("href", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Html]:
    """Build the site; return its pages by their paths."""
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "-d", str(target)]
    command += ["--config-file", "docs/mkdocs.yml"]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    pages = {page: page.read_text(encoding="utf-8") for page in target.rglob("*.html")}
    assert target / "index.html" in pages
    return {page: Html(text) for page, text in pages.items() if page.name != "404.html"}


@pytest.mark.long
def test_what_a_page_of_the_site_refers_to_is_there(site: dict[Path, Html]) -> None:
    lost, outside = [], []
    for page, html in site.items():
        for link in html.links:
            parts = urlsplit(link)
            if parts.scheme or not link:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            fragment = unquote(parts.fragment)
            known = site[target].ids if target in site else set[str]()
            if not target.exists() or (fragment and target in site and fragment not in known):
                lost.append((page.name, link))
        outside += [link for link in html.loaded if urlsplit(link).netloc]
    assert lost == []
    assert outside == []


@pytest.mark.long
def test_every_name_that_stays_has_its_place_in_the_site(site: dict[Path, Html]) -> None:
    found = {name for page, html in site.items() if page.parent.name == "api" for name in html.ids}
    assert {f"cqstore.{name}" for name in PUBLIC} <= found
    assert "cqstore.MessageStore.get_message" in found


@pytest.mark.long
def test_a_search_shows_messages_before_decisions(site: dict[Path, Html]) -> None:
    root = min((page.parent for page in site), key=lambda folder: len(folder.parts))
    index = json.loads((root / "search" / "search_index.json").read_text(encoding="utf-8"))
    boosts = {each["location"].partition("#")[0]: each.get("boost", 1) for each in index["docs"]}
    decision = boosts["decisions/0017-passing-over-a-damaged-record.html"]
    assert boosts["error-messages.html"] > boosts["operations.html"] > decision
