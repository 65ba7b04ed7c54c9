"""Everything is imported as ``cqstore.…``: no code, string or document uses a bare name."""

import ast
import re
import subprocess

import pytest

from tests.kit.product_tree import LINKED, ROOT, module_name, product_files

MOVED = ("replication", "analysis", "on_spark", "ab", "metadata", "operating", "embedded")
"""Packages that were at the top as well, before they moved below ``cqstore``."""
BARE = "|".join((*LINKED, *MOVED))
IMPORT = re.compile(rf"^[ \t>]*(?:from|c?import)[ \t]+(?:{BARE})\b(?!-)", re.MULTILINE)
DOTTED = re.compile(rf"(?:{BARE})(?:\.\w+)+(?::\w+)?")
BEGIN = re.compile(rf"[\"'}}](?:{BARE})\b")
"""The begin of a string, or of a part after a brace, that may be such a name."""
TEXTS = (".py", ".pyi", ".pyx", ".pxd", ".md", ".toml", ".yml", ".ini", ".allow")
SAMPLES = {
    "tests/meta/test_bare_names.py", "tests/meta/test_compiled_layers.py",
    "tests/cli/test_current_folder.py",
}  # fmt: skip
"""Files that hold bare names in order to refuse them."""


def texts() -> dict[str, str]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = {name for name in listed.stdout.decode().split("\0") if name.endswith(TEXTS)}
    return {name: (ROOT / name).read_text("utf-8") for name in names - SAMPLES}


MODULES = {module_name(path).removeprefix("cqstore.") for path in product_files(".py", ".pyx")}


def bare_modules(code: str) -> list[str]:
    """Return strings of Python that lead to a module, or a name in one, without ``cqstore``."""
    if not BEGIN.search(code):  # most files: to parse them takes long
        return []
    texts = (
        node.value
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    found = (text for text in texts if DOTTED.fullmatch(text))
    return [text for text in found if {text, *prefixes(text)} & MODULES]


def prefixes(name: str) -> set[str]:
    parts = re.split(r"[.:]", name)
    return {".".join(parts[:count]) for count in range(2, len(parts))}


def test_nothing_imports_a_bare_name() -> None:
    found = {name: IMPORT.findall(text) for name, text in texts().items()}
    assert len(found) > 1_500
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_no_format_string_begins_with_a_bare_name() -> None:
    begin = re.compile(rf"\bf[\"'](?:{BARE})\.")
    assert [name for name, text in texts().items() if begin.search(text)] == []


def test_no_dotted_string_begins_with_a_bare_name() -> None:
    found = {name: bare_modules(text) for name, text in texts().items() if name.endswith(".py")}
    assert len(found) > 1_000
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "line",
    [
        "from store.log import x",
        "import migration",
        "    from ab.run cimport y",
        ">>> import store",
    ],
)
def test_a_bare_import_is_found(line: str) -> None:
    assert IMPORT.search(f"x = 1\n{line}\n")


@pytest.mark.parametrize(
    "line", ["from cqstore.store import x", "from metadatas import y", "import abc"]
)
def test_another_import_is_not(line: str) -> None:
    assert not IMPORT.search(line)


def test_a_dotted_name_is_found_if_a_module_has_it() -> None:
    path = "store.log.commit_log"
    assert bare_modules(f"x = '{path}.CommitLog', '{path}:open'") == [
        f"{path}.CommitLog",
        f"{path}:open",
    ]
    assert bare_modules(f"x = 'store.queues.name', 'cqstore.{path}', 'store.md'") == []
