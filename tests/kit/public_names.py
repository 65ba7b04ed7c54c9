"""The names that signatures and docstrings of the public API use, read from the sources.

From sources and stubs, because the annotations of a module may name types that it imports for type
checkers alone, and because compiled classes have no annotations.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.kit.product_tree import ROOT

ERROR = re.compile(r"\b([A-Z]\w+(?:Error|Exception))\b")


_COMPOSED = (ast.Subscript, ast.BinOp)
_DOCUMENTED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class UsedName(NamedTuple):
    """A name of this project that something public uses."""

    where: str
    """The public name, and the member of it."""
    module: str
    name: str


@cache
def scope_of(path: Path) -> dict[str, tuple[str, str]]:
    """Return name → module and name there, of all that a file imports or defines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = ".".join(path.with_suffix("").resolve().relative_to(ROOT).parts)
    own = own if own.startswith("cqstore") else f"cqstore.{own}"
    scope: dict[str, tuple[str, str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for each in node.names:
                scope[each.asname or each.name] = (node.module, each.name)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            scope[node.name] = (own, node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            scope[node.targets[0].id] = (own, node.targets[0].id)
    return scope


def source_of(module: ModuleType) -> Path:
    """Return the file that declares what ``module`` has: its stub, where it is compiled."""
    path = Path(str(module.__file__))
    return path if path.suffix == ".py" else path.with_name(f"{path.name.split('.')[0]}.pyi")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a module, those in its conditions too."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _statements([*node.body, *node.orelse])
        else:
            yield node


@cache
def definition(module: str, name: str) -> tuple[Path, ast.stmt] | None:
    """Return where ``name`` is defined, following imports; ``None``: outside of this project."""
    if not module.startswith("cqstore"):
        return None
    path = source_of(import_module(module))
    for node in _statements(ast.parse(path.read_text(encoding="utf-8")).body):
        if isinstance(node, _DOCUMENTED) and node.name == name:
            return path, node
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(each, ast.Name) and each.id == name for each in targets):
                return path, node
    found = scope_of(path).get(name)
    return definition(*found) if found is not None and found[0] != module else None


def _names(node: ast.AST) -> Iterator[str]:
    """Yield the names in an annotation, those in strings too; of ``Annotated`` only the type."""
    if isinstance(node, ast.Subscript) and ast.unparse(node.value) == "Annotated":
        node = next(ast.iter_child_nodes(node.slice))
    for each in ast.walk(node):
        if isinstance(each, ast.Name):
            yield each.id
        elif isinstance(each, ast.Constant) and isinstance(each.value, str):
            try:
                yield from _names(ast.parse(each.value, mode="eval"))
            except SyntaxError:
                continue


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    given = node.args
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if each is not None and each.annotation is not None:
            yield each.annotation
    if node.returns is not None:
        yield node.returns


def _raised(node: ast.AST) -> Iterator[str]:
    """Yield the errors that the ``Raises:`` section of a docstring names."""
    if not isinstance(node, _DOCUMENTED):
        return
    is_within = False
    for line in (ast.get_docstring(node) or "").splitlines():
        if line and not line.startswith(" "):
            is_within = line == "Raises:"
        elif is_within:
            yield from ERROR.findall(line)


def _attributes(node: ast.FunctionDef) -> Iterator[tuple[str, set[str]]]:
    """Yield the public attributes that a constructor declares with a type."""
    for each in ast.walk(node):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Attribute):
            name = each.target.attr
            yield from () if name.startswith("_") else [(name, {*_names(each.annotation)})]


def attributes_of(kind: type) -> set[str]:
    """Return the public attributes that the constructor of a class declares with a type."""
    found = definition(kind.__module__, kind.__name__)
    assert found is not None
    return {
        name
        for node in ast.walk(found[1])
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
        for name, _ in _attributes(node)
    }


def _members(node: ast.ClassDef, *, constructor: bool) -> Iterator[tuple[str, set[str]]]:
    """Yield the public members of a class, and the names that each uses."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            yield from _attributes(each)
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            is_special = each.name in {"__init__", "__new__", "__call__"}
            if each.name.startswith("_") and not (is_special and constructor):
                continue
            used = {name for part in _signature(each) for name in _names(part)}
            yield each.name, used | {*_raised(each)}
        elif isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            name = each.target.id
            yield from () if name.startswith("_") else [(name, {*_names(each.annotation)})]
    yield "", {*_raised(node)}


def used_names(public: str, module: str, name: str, *, constructor: bool) -> Iterator[UsedName]:
    """Yield the names of this project that a public name uses."""
    found = definition(module, name)
    assert found is not None, f"{public} is not defined in {module}"
    path, node = found
    members: list[tuple[str, set[str]]]
    if isinstance(node, ast.ClassDef):
        members = [*_members(node, constructor=constructor)]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        members = [
            ("", {each for part in _signature(node) for each in _names(part)} | {*_raised(node)})
        ]
    elif isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, _COMPOSED):
        members = [("", {*_names(node.value)})]  # an alias; another name of a class is no use of it
    else:
        members = []
    scope = scope_of(path)
    for member, names in members:
        for each in names:
            place = _resolved(scope, each)
            if place is not None:
                yield UsedName(f"{public}.{member}" if member else public, *place)


def _resolved(scope: dict[str, tuple[str, str]], name: str) -> tuple[str, str] | None:
    """Return module and name of a name of this project; errors are found without an import too."""
    place = scope.get(name)
    if place is None and ERROR.fullmatch(name):
        for module in ("cqstore.store.errors", "cqstore.embedded.errors"):
            if definition(module, name) is not None:
                return module, name
    if place is None or not place[0].startswith("cqstore"):
        return None
    found = definition(*place)
    if found is None:
        return None
    defined = scope_of(found[0]).get(name if place[1] == name else place[1])
    return defined or place


def closure(public: dict[str, tuple[str, str]], hidden: set[str]) -> Iterator[UsedName]:
    """Yield each class of this project that a public name uses; aliases are replaced by theirs.

    ``hidden`` are the classes whose constructors are not for users.
    """
    waiting = [(each, *place) for each, place in public.items()]
    seen: set[tuple[str, str]] = set()
    while waiting:
        shown, module, name = waiting.pop()
        for used in used_names(shown, module, name, constructor=shown not in hidden):
            found = definition(used.module, used.name)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield used
            elif used[1:] not in seen:
                seen.add(used[1:])
                waiting.append((f"{used.where} ({used.name})", used.module, used.name))
