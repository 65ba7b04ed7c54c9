"""Every error survives pickling with its place, and every name of the package is one."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

import cqstore
from cqstore.cq_rocksdb.engine import errors as rocksdb_errors
from cqstore.store import errors
from tools.mutants.__main__ import PACKAGES, ROOT


def classes(base: type[errors.StoreError]) -> list[type[errors.StoreError]]:
    return [base, *(child for sub in base.__subclasses__() for child in classes(sub))]


@pytest.mark.parametrize("kind", classes(errors.StoreError))
def test_errors_come_back_from_pickling(kind: type[errors.StoreError]) -> None:
    error = kind("it broke", path=Path("some/file"), phy_offset=12, position=3)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert "it broke (some/file, position 3, phy_offset 12)" in str(back)


def test_the_tree_at_the_top_of_the_module_is_the_tree() -> None:
    text = errors.__doc__ or ""
    own = {
        kind.__name__
        for kind in classes(errors.StoreError)
        if kind.__module__ == "cqstore.store.errors"
    }
    assert own == {word for word in text.replace("*", " ").split() if word.endswith("Error")} & own
    assert rocksdb_errors.RocksDBError in classes(errors.ConsumeQueueError)


def test_what_the_package_offers_is_sorted_and_there() -> None:
    assert sorted(cqstore.__all__) == cqstore.__all__
    assert [name for name in cqstore.__all__ if not hasattr(cqstore, name)] == []


def blocks_of(name: str) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yield place and arguments of each ``with name(...)`` of the product."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if f"{name}(" in text else ():
            for item in node.items if isinstance(node, ast.With) else ():
                call = item.context_expr
                if isinstance(call, ast.Call) and ast.unparse(call.func) == name:
                    yield f"{path}:{call.lineno}", call.args


def words_of(node: ast.expr) -> list[str] | None:
    """Return what an expression says, each way that it may go; ``None`` if it is no text."""
    if isinstance(node, ast.IfExp):
        both = words_of(node.body), words_of(node.orelse)
        return None if None in both else [*(both[0] or ()), *(both[1] or ())]
    if isinstance(node, ast.JoinedStr):
        return [ast.unparse(node)[2:-1]]
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


@pytest.mark.parametrize(("name", "least"), [("os_errors", 100), ("progress", 10)])
def test_what_is_done_comes_first_and_then_to_what(name: str, least: int) -> None:
    """``cannot open the log (path)``: the other way round the sentence would name no path."""
    found = dict(blocks_of(name))
    assert len(found) > least
    for place, (what, *rest) in found.items():
        words = words_of(what)
        if words is None:  # of who calls: a path or a number it is not
            assert isinstance(what, ast.Name), place
            assert what.id in {"action", "label", "what"}, place
        else:
            assert all(word[:1].islower() for word in words), place
        assert not rest or words_of(rest[0]) is None, place
