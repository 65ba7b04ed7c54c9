"""Compiled modules: what belongs to each, and what an installation finds of them."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.kit.compiled_sources import modules
from tests.kit.product_tree import ROOT, module_name, product_files


@pytest.mark.parametrize("module", modules(), ids=str)
def test_each_module_has_a_stub(module: Path) -> None:
    assert (ROOT / module).with_suffix(".pyi").is_file()


@pytest.mark.parametrize("module", modules(), ids=str)
def test_docstrings_of_a_stub_are_those_that_help_shows(module: Path) -> None:
    tree = ast.parse((ROOT / module).with_suffix(".pyi").read_text("utf-8"))
    compiled = import_module(module_name(module))
    documented = [
        (kind.name, member)
        for kind in tree.body
        if isinstance(kind, ast.ClassDef)
        for member in (kind, *kind.body)
        if isinstance(member, ast.ClassDef | ast.FunctionDef) and member.name != "__init__"
        if ast.get_docstring(member) is not None
    ]
    for name, member in documented:
        kind = getattr(compiled, name)
        shown = kind if member.name == name else getattr(kind, member.name)
        assert inspect.getdoc(shown) == ast.get_docstring(member)


@pytest.mark.parametrize("module", modules(), ids=str)
def test_a_missing_core_is_reported_wherever_an_import_begins(module: Path) -> None:
    """A room with compiled modules imports ``store.core``, which reports a missing build."""
    if module.parts[0] == "store" and module.parts[1] != "core":
        begin = (ROOT / "store" / module.parts[1] / "__init__.py").read_text("utf-8")
        assert "\nimport cqstore.store.core  # noqa: F401" in begin


def test_the_handler_and_the_table_of_maps_are_those_of_one_module() -> None:
    """Each module that includes them has its own, and does not see what another one counts."""
    including = [
        path
        for path in product_files(".pyx", ".pxd", ".pxi", ".h")
        if re.search(r'"[\w./]*_faults\.h"', (ROOT / path).read_text("utf-8"))
    ]
    assert including == [Path("store/core/_faults.pyx")]


@pytest.mark.parametrize(
    ("struct", "names"), [("Functions", "_NAMES"), ("OptionalFunctions", "_OPTIONAL_NAMES")]
)
def test_functions_of_rocksdb_are_looked_up_in_the_order_of_their_table(
    struct: str, names: str
) -> None:
    """A name in the wrong place would be called with another one's arguments."""
    table = (ROOT / "cq_rocksdb" / "engine" / "_capi.pxd").read_text("utf-8")
    source = (ROOT / "cq_rocksdb" / "engine" / "_capi.pyx").read_text("utf-8")
    (fields,) = re.findall(rf"^cdef struct {struct}:\n((?:    .*\n)+)", table, re.MULTILINE)
    (found,) = re.findall(rf'^{names} = b"+([a-zA-Z_\s]+)"', source, re.MULTILINE)
    assert re.findall(r"^    [a-zA-Z].* \*?\(\*(\w+)\)\(", fields, re.MULTILINE) == found.split()
