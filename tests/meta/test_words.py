"""Names are words of the field, those of ``docs/glossary.md``."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.xdist_group("trees")

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "cqstore",
    "store",
    "cq_file",
    "cq_rocksdb",
    "migration",
    "tools/bench",
    "tools/mutants",
)
VERBS = "tells?|told|hears?|heard|came|says?|said|asks?|asked"
"""What people do, and things do not."""
FUNCTIONS = re.compile(
    rf"_{{0,2}}(looks?|heeds?|untold|{VERBS}|plain|hands?_on|lets?|settle|way_back)(_|$)"
)
"""What a name of a function does not begin with: what it does has a verb of the field."""
LEFT_BEHIND = {
    "Answers", "AskedIndex", "Came", "Course", "Growth", "HandedOn", "Hearing", "HowMuch", "Intake",
    "Lack", "Lasting", "Life", "Loaded", "Marking", "NoPlainPuts", "Noting", "PagesAhead", "Part",
    "Parts", "PlainEncoder", "PlainFilter", "PlainLog", "PlainPulls", "PlainPuts", "PlainQueries",
    "PlainReads", "QueueLives", "Recovered", "Returning", "Section", "Standing", "Surroundings",
    "Talk", "Tap", "TellsEnds", "Trusted", "WholeFlush",
}  # fmt: skip
"""Names of classes in the store's and the migration's packages that said nothing to a newcomer."""
PEOPLE = re.compile(rf"_*({VERBS}|plain)(_|$)")
"""What no parameter is named, for the same reason."""
LIMIT = re.compile(r"_*(most|least)(_|$)")
"""What no parameter is named: limits are ``max_`` and ``min_``."""
UPSTREAM = {"least_pages"}
"""RocketMQ's own word for a limit."""
ROOMS = {
    "care", "finding", "upkeep", "running", "figures", "copying", "switching", "following",
    "way_back",
}  # fmt: skip


class Named(NamedTuple):
    """A function, a class or a parameter of the packages."""

    path: str
    kind: type[ast.AST]
    name: str
    line: int
    end_line: int


@cache
def names() -> list[Named]:
    """Return each name that the packages give.

    The trees themselves, of a million nodes, would be looked at by each collection of garbage.
    """
    found: list[Named] = []
    for path in (each for package in PACKAGES for each in (ROOT / package).rglob("*.py*")):
        if path.suffix in {".py", ".pyi"}:
            place = str(path.relative_to(ROOT))
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.arg):
                    found.append(Named(place, ast.arg, node.arg, node.lineno, node.lineno))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    end = node.end_lineno or node.lineno
                    found.append(Named(place, type(node), node.name, node.lineno, end))
    return found


def test_no_function_is_named_by_a_word_of_our_own() -> None:
    assert [
        f"{path}: {name}"
        for path, kind, name, *_ in names()
        if kind in {ast.FunctionDef, ast.AsyncFunctionDef} and FUNCTIONS.match(name)
    ] == []


def test_no_parameter_is_named_by_what_people_do() -> None:
    assert [
        f"{path}: {name}"
        for path, kind, name, *_ in names()
        if kind is ast.arg and PEOPLE.match(name)
    ] == []


def test_no_class_has_a_name_that_was_left_behind() -> None:
    assert [
        f"{path}: {name}"
        for path, kind, name, *_ in names()
        if kind is ast.ClassDef
        and name.lstrip("_") in LEFT_BEHIND
        and path.startswith(("store/", "migration/", "cqstore/replication/", "cq_"))
    ] == []


def test_limits_are_max_and_min() -> None:
    assert len({each.path for each in names()}) > 500
    assert [
        f"{path}: {name}"
        for path, kind, name, *_ in names()
        if kind is ast.arg and LIMIT.match(name) and name not in UPSTREAM
    ] == []


def test_folders_of_a_command_have_its_name() -> None:
    rooms = {
        path.name for room in ("store/service", "migration") for path in (ROOT / room).iterdir()
    }
    assert rooms & ROOMS == set()
    assert {"run", "switch", "follow", "rollback", "verify", "preflight"} <= rooms


def test_the_glossary_names_folders_that_there_are() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").split("## Folders")[1]
    named = {word for line in text.splitlines()[4:] for word in re.findall(r"`(\w+)`", line)}
    there = {path.parent.name for path in (ROOT / "store" / "service").glob("*/__init__.py")}
    assert named == there
