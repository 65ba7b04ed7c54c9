"""docs/error-messages.md, made from the sources: ``python -m tests.kit.message_page``.

The page's head is written by hand: what each kind of error means and what to do. Below the mark
each text of the product follows, in alphabetical order, with ``…`` for what a run fills in.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from cqstore.store.errors import StoreError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "error-messages.md"
MARK = "<!-- made from the sources -->\n"
PACKAGES = ("store", "cq_file", "cq_rocksdb", "migration", "cqstore")
FINDINGS, NOTES, LOGGED = "Findings", "Notes on standard error", "Log lines"
_TEXT = "sentence"
"""The field of a finding that is given by its name."""
Names = dict[str, list[ast.expr]]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Fields of statements that hold statements."""
_LEVELS = {"debug", "info", "warning", "error", "exception"}


def rendered(text: str) -> str:
    """Return ``text`` with everything below the mark made again."""
    head, _, _ = text.partition(MARK)
    return head + MARK + "".join(_sections())


@cache
def error_names() -> set[str]:
    """Return the names of all classes of ``StoreError`` that the packages define."""
    known = {StoreError.__name__}
    classes = [
        (node.name, {ast.unparse(base).rsplit(".")[-1] for base in node.bases})
        for tree in _trees()
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    ]
    while more := {name for name, bases in classes if bases & known} - known:
        known |= more
    return known


@cache
def messages() -> dict[str, set[str]]:
    """Return the texts of each class of errors, of findings, of notes and of log lines."""
    errors = error_names()
    found: dict[str, set[str]] = defaultdict(set)
    for tree in _trees():
        for call, names in _calls(tree):
            if kind := _kind(call.func, errors):
                said = [
                    *call.args[: 3 if kind == FINDINGS else 1],  # after its code and severity
                    *(each.value for each in call.keywords if each.arg == _TEXT),
                ]
                found[kind].update(text for one in said for text in _texts(one, names))
    return found


def literals() -> Iterator[str]:
    """Yield each string of the packages, and each constant part of a formatted one."""
    for tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def _trees() -> Iterator[ast.Module]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):  # follows no link to a folder
            yield ast.parse(path.read_text(encoding="utf-8"))


def _kind(function: ast.expr, errors: set[str]) -> str | None:
    if isinstance(function, ast.Attribute):
        name = function.attr
    elif isinstance(function, ast.Name):
        name = function.id
    else:
        return None
    if name in errors:
        return name
    if name.lower().endswith("finding"):
        return FINDINGS
    if name in {"note", "warn"}:
        return NOTES
    if name in _LEVELS and isinstance(function, ast.Attribute):
        return LOGGED if "log" in ast.unparse(function.value).lower() else None
    return None


def _calls(tree: ast.Module) -> Iterator[tuple[ast.Call, Names]]:
    """Yield each call, with what the names of its module and its function are set to."""
    waiting: list[tuple[ast.AST, Names]] = [(tree, _assigned(tree.body))]
    for node, names in waiting:
        if isinstance(node, ast.Call):
            yield node, names
        inner = names
        if isinstance(node, ast.FunctionDef):
            inner = names | _assigned(_statements(node.body))
        waiting.extend((child, inner) for child in ast.iter_child_nodes(node))


def _statements(block: Iterable[ast.AST]) -> list[ast.AST]:
    """Return the statements of a block, and those inside them."""
    found = [*block]
    for node in found:
        found.extend(each for name in _BLOCKS for each in getattr(node, name, ()))
    return found


def _assigned(nodes: Iterable[ast.AST]) -> Names:
    found: Names = defaultdict(list)
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                pairs = [(target, node.value)]
                if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = [*zip(target.elts, node.value.elts, strict=False)]
                for name, value in pairs:
                    if isinstance(name, ast.Name):
                        found[name.id].append(value)
    return found


def _texts(node: ast.expr, constants: Names) -> Iterator[str]:
    """Yield each text that ``node`` may have, if words are in it."""
    for variant in _variants(node, constants):
        text = " ".join(re.sub(r"%[sdr]|%\.\df", "…", variant).replace("……", "…").split())
        if sum(word.strip("…(),;:'").isalpha() for word in text.split()) > 1:
            yield text


def _variants(node: ast.expr, constants: Names) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            found = [text]
        case ast.JoinedStr(values=parts):
            found = _joined(parts, constants)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            found = _joined([left, right], constants)
        case ast.BinOp(left=left, op=ast.Mod()):
            found = _variants(left, constants)
        case ast.IfExp(body=body, orelse=orelse):
            found = _variants(body, constants) + _variants(orelse, constants)
        case ast.FormattedValue(value=ast.IfExp() as value):
            found = _variants(value, constants)
        case ast.Name(id=name) | ast.FormattedValue(value=ast.Name(id=name)) if name in constants:
            found = [text for value in constants[name] for text in _variants(value, {})]
        case _:
            found = ["…"]
    return found


def _joined(parts: list[ast.expr], constants: Names) -> list[str]:
    texts = [""]
    for part in parts:
        texts = [text + more for text in texts for more in _variants(part, constants)]
    return texts


def _sections() -> Iterator[str]:
    found = messages()
    named = sorted(found.keys() - {FINDINGS, NOTES, LOGGED})
    for kind in [*named, FINDINGS, NOTES, LOGGED]:
        if texts := sorted(found[kind], key=lambda text: text.strip("…'\" ").lower()):
            heading = f"`{kind}`" if kind in named else kind
            rows = "".join(f"| `{_cell(text)}` |\n" for text in texts)
            yield f"\n### {heading}\n\n| message |\n| --- |\n{rows}"


def _cell(text: str) -> str:
    return text.replace("`", "'").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
