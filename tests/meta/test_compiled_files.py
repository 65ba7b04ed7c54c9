"""What is said of compiled modules in other places than their own names each of them."""

import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from store.core import COMPILED
from tests.kit.compiled_sources import MODULES, PROJECT, made_of
from tests.kit.pages import ROOT

IGNORED = (ROOT / ".gitignore").read_text("utf-8").split()
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
ROOMS = re.findall(r"^COMPILED := (.*)$", MAKEFILE, re.MULTILINE)[0].split()
SOURCES = "$(foreach room,$(COMPILED),$(wildcard $(room)/_*.p[yx][xid] $(room)/_*.h))"
STUBBED = re.findall(r"^MODULES = .* 's/\^(name = .*)\$\$/", MAKEFILE, re.MULTILINE)[0]
REMOVED = "rm -f $(foreach room,$(COMPILED),$(room)/_*.c $(room)/_*.so)"
each_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module["name"])


def as_git_reads(line: str) -> str:
    return re.escape(line).replace(r"/\*\*/", "/(?:.*/)?").replace(r"\*", "[^/]*")


@each_module
def test_make_knows_what_a_module_is_made_of(module: dict[str, Any]) -> None:
    assert SOURCES in MAKEFILE
    known = [f"{room}/{name}" for room in ROOMS for name in ("_*.p[yx][xid]", "_*.h")]
    assert [each for each in made_of(module) if not any(fnmatch(each, one) for one in known)] == []


def test_the_handler_and_the_table_of_maps_are_those_of_one_module() -> None:
    """Each module that includes them has its own, and does not see what another one counts."""
    having = [each["name"] for each in MODULES if "store/core/_faults.h" in made_of(each)]
    assert having == ["store.core._faults"]


@each_module
def test_make_clean_removes_what_a_module_was_made_into(module: dict[str, Any]) -> None:
    assert REMOVED in MAKEFILE
    assert Path(module["sources"][0]).parent.as_posix() in ROOMS


@each_module
def test_what_a_module_is_made_into_is_not_kept(module: dict[str, Any]) -> None:
    made = Path(module["sources"][0]).with_suffix(".c").as_posix()
    assert any(re.fullmatch(as_git_reads(line), f"/{made}") for line in IGNORED)
    assert "*.so" in IGNORED


@each_module
def test_sources_and_stubs_of_a_module_are_installed(module: dict[str, Any]) -> None:
    for name in made_of(module):
        package, _, rest = name.partition("/")
        given = PROJECT["setuptools"]["package-data"][package]
        assert Path(name).suffix == ".h" or any(
            fnmatch(rest, one.removeprefix("**/")) for one in given
        )


@pytest.mark.parametrize(
    "module", [each for each in MODULES if each["name"].startswith("store.")],
    ids=lambda module: module["name"],
)  # fmt: skip
def test_a_module_that_lacks_is_met_where_a_sentence_says_so(module: dict[str, Any]) -> None:
    """``store.core`` imports all; those that import Python's come behind it in any case."""
    text = (ROOT / module["sources"][0]).read_text("utf-8")
    has_python = re.search(r"^from store\.[\w.]+ import ", text, re.MULTILINE) is not None
    assert has_python != (module["name"] in COMPILED)
    room = module["name"].split(".")[1]
    begin = (ROOT / "store" / room / "__init__.py").read_text("utf-8")
    assert room == "core" or "\nimport store.core  # noqa: F401" in begin


def test_no_module_is_awaited_that_is_not_made() -> None:
    assert {*COMPILED} <= {module["name"] for module in MODULES}
    assert sorted(COMPILED) == [*COMPILED]


@each_module
def test_the_stub_of_a_module_is_compared_with_it(module: dict[str, Any]) -> None:
    named = STUBBED.replace(r"\(", "(").replace(r"\)", ")")
    assert re.fullmatch(named, f'name = "{module["name"]}"')
    assert (ROOT / module["sources"][0]).with_suffix(".pyi").is_file()


@pytest.mark.parametrize(
    ("struct", "names"), [("Functions", "_NAMES"), ("OptionalFunctions", "_OPTIONAL_NAMES")]
)
def test_functions_of_rocksdb_are_looked_up_in_the_order_of_their_table(
    struct: str, names: str
) -> None:
    """A name in the wrong place would be called with another one's arguments."""
    table = (ROOT / "cq_rocksdb" / "_capi.pxd").read_text("utf-8")
    source = (ROOT / "cq_rocksdb" / "_capi.pyx").read_text("utf-8")
    (fields,) = re.findall(rf"^cdef struct {struct}:\n((?:    .*\n)+)", table, re.MULTILINE)
    (found,) = re.findall(rf'^{names} = b"+([a-zA-Z_\s]+)"', source, re.MULTILINE)
    assert re.findall(r"^    [a-zA-Z].* \*?\(\*(\w+)\)\(", fields, re.MULTILINE) == found.split()
