"""What users import: one list of names, with types, and all that their signatures use."""

import ast
import builtins
import re
from importlib import import_module
from pathlib import Path

import pytest

import cqstore
from cqstore.embedded.open_log import open_log
from cqstore.store.errors import StoreError
from cqstore.store.lazy_names import places
from tests.kit.pages import ROOT
from tests.kit.public_names import UsedName, closure

PACKAGES = [
    "cqstore", "cqstore.analysis", "cqstore.metrics", "cqstore.migration", "cqstore.replication",
    "cqstore.spark", "cqstore.testing",
]  # fmt: skip
"""The modules whose names stay."""
API = "\n".join(page.read_text("utf-8") for page in (ROOT / "docs" / "api").glob("*.md"))


def exported(package: str) -> dict[str, tuple[str, str]]:
    """Return public name → module and name, of one package."""
    return places(stub_of(package).read_text(encoding="utf-8"))


def stub_of(package: str) -> Path:
    """Return the stub of a package, which lists its names."""
    return Path(str(import_module(package).__file__)).with_name("__init__.pyi")


def unfinished_constructors(package: str) -> set[str]:
    """Return the classes whose constructors the pages hide: the library alone makes them."""
    shown = re.findall(rf"^::: {package}\.(\w+)\n((?: .*\n)*)", API, re.MULTILINE)
    return {name for name, options in shown if "merge_init_into_class: false" in options}


def of_stub(package: str) -> dict[str, tuple[str, str]]:
    """Return public name → module and name, of the stub of a package."""
    found: dict[str, tuple[str, str]] = {}
    imported: dict[str, tuple[str, str]] = {}
    for node in ast.parse(stub_of(package).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            assert node.module is not None
            for each in node.names:
                place = (node.module, each.name)
                is_exported = each.asname == each.name
                (found if is_exported else imported)[each.asname or each.name] = place
        elif isinstance(node, ast.Assign):
            assert isinstance(node.targets[0], ast.Name)
            assert isinstance(node.value, ast.Name)
            found[node.targets[0].id] = imported.pop(node.value.id)
    assert imported == {}
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stub_and_the_package_export_the_same(package: str) -> None:
    module = import_module(package)
    assert of_stub(package) == exported(package)
    assert module.__all__ == sorted(exported(package).keys() - vars(builtins).keys())
    assert exported(package).keys() <= {*dir(module)}
    for name, (place, there) in exported(package).items():
        assert getattr(module, name) is getattr(import_module(place), there)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing


def test_an_import_of_everything_replaces_no_builtin() -> None:
    names: dict[str, object] = {}
    exec("from cqstore import *", names)
    assert "MessageStore" in names
    assert names.keys() & vars(builtins).keys() == set()
    assert cqstore.open is open_log


def test_no_public_name_is_that_of_a_module_below() -> None:
    for package in PACKAGES:
        folder = Path(str(import_module(package).__file__)).parent
        modules = {each.stem for each in folder.iterdir()}
        assert modules & {*exported(package)} == set(), package


@pytest.mark.parametrize("package", PACKAGES[:1])
def test_each_class_of_a_public_signature_can_be_imported(package: str) -> None:
    known = [getattr(import_module(package), name) for name in exported(package)]

    def is_known(used: UsedName) -> bool:
        found = getattr(import_module(used.module), used.name)
        return any(found is each for each in known)

    lost: dict[tuple[str, str], list[str]] = {}
    for used in closure(exported(package), unfinished_constructors(package)):
        if not is_known(used):
            lost.setdefault(used[1:], []).append(used.where)
    assert lost == {}


def test_what_signatures_use_is_found_at_all() -> None:
    used = {(each.where, each.name) for each in closure(exported("cqstore"), set())}
    assert {
        ("MessageStore.open", "RecoveryOptions"), ("MessageStore.verify", "Compared"),
        ("MessageStore.report", "RecoveryReport"), ("MessageStore.close", "NestedCallError"),
        ("MetricsSnapshot.put_seconds", "HistogramSnapshot"), ("Tail", "StoreClosedError"),
        ("StoreCheck.__init__", "CommitLog"), ("open", "StoreHooks"),
    } - used == {("Tail", "StoreClosedError")}  # fmt: skip


def test_all_errors_of_the_store_are_exported() -> None:
    below = [StoreError]
    for each in below:
        below += [
            kind for kind in each.__subclasses__() if kind.__module__ == StoreError.__module__
        ]
    assert {kind.__name__ for kind in below} <= {*cqstore.__all__}


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_each_name_of_another_package_is_on_a_page(package: str) -> None:
    shown = re.findall(rf"^::: {package}\.(\w+)$", API, re.MULTILINE)
    assert sorted(shown) == sorted(exported(package))


def code_blocks(text: str) -> str:
    """Return the blocks of code of a page: fenced, or indented."""
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return "\n".join([*fenced, *re.findall(r"^    .*$", text, re.MULTILINE)])


def test_no_page_imports_what_may_change() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    for page in pages:
        code = code_blocks(page.read_text(encoding="utf-8"))
        imported = re.findall(r"(?:from|import) (cqstore[\w.]*)", code)
        assert {*imported} <= {*PACKAGES}, page
