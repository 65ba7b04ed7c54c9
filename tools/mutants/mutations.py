"""Every mutation of a source: what it replaces, by what, and how it is named."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatchmethod
from itertools import pairwise

from tools.mutants.compiled import SUFFIXES, Restored, as_python

_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_NAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNSEEN = {"__repr__", "__str__"}
_LOGGERS = {"_LOG", "_log", "log", "logger"}
_SYMMETRIC = {"memcmp"}
_OPTIONS = {"Option", "Argument"}
_ASSERTING = {"strict", "daemon"}
_SHOWN = 60
"""Characters of a piece of code in the name of a mutation."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one file. ``start`` and ``end`` are bytes of its source."""

    path: str
    line: int
    last_line: int
    """Of the statement, or of the head of a compound one, that it lies in."""
    function: str
    text: str
    """The line without its indent: identifies it after other lines have moved."""
    what: str
    """The change in words, no two of a line alike."""
    start: int
    end: int
    new: str

    def applied(self, source: bytes) -> bytes:
        """Return the source with the mutation in it."""
        return source[: self.start] + self.new.encode() + source[self.end :]

    @property
    def name(self) -> str:
        """Path, line and change, for people."""
        return f"{self.path}:{self.line}: {self.what}"


def mutations(path: str, source: bytes) -> list[Mutation]:
    """Return every mutation of a module, in the order of its lines.

    Left out is what no test should pin: strings (names and messages), annotations, log calls,
    options of commands, assertions (``strict`` of ``zip`` is one), whether a process waits for a
    thread at its end, the 0 of a compiled function that returns nothing else, and the numbers of a
    module's constants, which are layouts (golden stores tell them) or tunings (no value is wrong).
    """
    finder = _Finder(path, source)
    finder.module(ast.parse(as_python(source) if path.endswith(SUFFIXES) else source))
    found = sorted(finder.found, key=lambda mutation: (mutation.start, mutation.what))
    alike: Counter[tuple[int, str]] = Counter()
    for at, mutation in enumerate(found):
        alike[mutation.line, mutation.what] += 1
        if (number := alike[mutation.line, mutation.what]) > 1:
            found[at] = replace(mutation, what=f"{mutation.what} ({number})")
    return found


class _Finder:
    """Walks through a module's source and collects what could be changed in it."""

    def __init__(self, path: str, source: bytes) -> None:
        self.found: list[Mutation] = []
        self._path = path
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._function = ""
        self._returns_status = False
        self._statement: ast.stmt | None = None
        self._is_compiled = path.endswith(SUFFIXES)
        self._text = Restored(source).text if self._is_compiled else ast.unparse
        self._zeros = _named_zeros(source) if self._is_compiled else set()

    # ---- walking

    def module(self, tree: ast.Module) -> None:
        self._block(tree.body)

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._visit_statement(statement)
        for first, second in pairwise(body):
            if _is_call(first) and _is_call(second):
                self._swap(first, second)

    def _visit_statement(self, node: ast.stmt) -> None:
        if _is_left_out(node) or (self._returns_status and isinstance(node, ast.Return)):
            return
        outer, self._statement = self._statement, node
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            self._scope(node)
        else:
            self.statement(node)
            self._children(node)
        self._statement = outer

    def _scope(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if node.name in _UNSEEN:
            return
        outer = self._function
        self._function = f"{outer}.{node.name}" if outer else node.name
        self._returns_status = self._is_compiled and _returns_only_zero(node)
        if isinstance(node, ast.FunctionDef):
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self._expression(default)
        self._block(node.body)
        self._function, self._returns_status = outer, False

    def _children(self, node: ast.AST) -> None:
        for name, value in ast.iter_fields(node):
            if name == "annotation":
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.expr):
                    self._expression(child)
                elif isinstance(child, ast.AST) and not isinstance(child, ast.stmt):
                    self._handler(child)
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self._block(value)

    def _handler(self, node: ast.AST) -> None:
        if isinstance(node, ast.keyword) and node.arg in _ASSERTING:
            return
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            # In Cython, no classes are all classes; and no code of ours raises this one.
            nothing = "GeneratorExit" if self._is_compiled else "()"
            self._replace(node.type, nothing, "catches nothing")
        self._children(node)

    def _expression(self, node: ast.expr) -> None:
        if isinstance(node, ast.JoinedStr) or _is_option(node):
            return
        self.expression(node)
        self._children(node)

    # ---- statements

    @singledispatchmethod
    def statement(self, node: ast.stmt) -> None:
        """Add what can be done to a statement itself."""

    @statement.register
    def _(self, node: ast.Expr | ast.AugAssign | ast.Raise | ast.Delete) -> None:
        if not isinstance(node, ast.Expr) or isinstance(node.value, ast.Call):
            self._replace(node, "pass", f"`{self._shown(node)}` is left out")

    @statement.register
    def _(self, node: ast.Assign) -> None:
        is_kept = isinstance(node.targets[0], ast.Attribute | ast.Subscript)
        line = self._lines[node.lineno - 1]
        if is_kept or (self._is_compiled and not line.lstrip().startswith(b"cdef ")):
            self._replace(node, "pass", f"`{self._shown(node)}` is left out")

    @statement.register
    def _(self, node: ast.Return) -> None:
        nothing = "0" if self._is_compiled else "None"
        same = {"None", "False", nothing, *self._zeros}
        if node.value is not None and ast.unparse(node.value) not in same:
            self._replace(node, f"return {nothing}", f"returns {nothing}")

    @statement.register
    def _(self, node: ast.If) -> None:
        for value in ("True", "False"):
            self._replace(node.test, value, f"`{self._shown(node.test)}` is always {value}")

    @statement.register
    def _(self, node: ast.Break) -> None:
        self._replace(node, "continue", "`break` becomes `continue`")

    @statement.register
    def _(self, node: ast.Continue) -> None:
        self._replace(node, "break", "`continue` becomes `break`")

    # ---- expressions

    @singledispatchmethod
    def expression(self, node: ast.expr) -> None:
        """Add what can be done to an expression itself."""

    @expression.register
    def _(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            operators = list(node.ops)
            operators[place] = _COMPARED[type(operator)]()
            self._become(node, ast.Compare(node.left, operators, node.comparators))

    @expression.register
    def _(self, node: ast.BinOp) -> None:
        other = _COMPUTED.get(type(node.op))
        if other is not None and self._function:
            self._become(node, ast.BinOp(node.left, other(), node.right))

    @expression.register
    def _(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._become(node, ast.BoolOp(other, node.values))

    @expression.register
    def _(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub):
            self._become(node, node.operand)

    @expression.register
    def _(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._become(node, ast.Constant(not node.value))
        elif isinstance(node.value, int) and self._function:
            self._become(node, ast.Constant(node.value + 1))

    @expression.register
    def _(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Name) and node.func.id in _NAMED:
            other = ast.Name(_NAMED[node.func.id])
            self._become(node, ast.Call(other, node.args, node.keywords))
        elif isinstance(node.func, ast.Name) and node.func.id in _SYMMETRIC:
            return
        elif len(node.args) > 1 and not any(isinstance(arg, ast.Starred) for arg in node.args[:2]):
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            if ast.dump(swapped[0]) != ast.dump(swapped[1]):
                self._become(node, ast.Call(node.func, swapped, node.keywords))

    # ---- adding

    def _become(self, old: ast.expr, new: ast.expr) -> None:
        text = self._text(new)
        self._replace(old, f"({text})", f"`{self._shown(old)}` becomes `{_short(text)}`")

    def _swap(self, first: ast.stmt, second: ast.stmt) -> None:
        (start, end), (next_start, next_end) = self._span(first), self._span(second)
        between = self._source[end:next_start]
        parts = self._source[next_start:next_end] + between + self._source[start:end]
        what = f"`{self._shown(second)}` goes before `{self._shown(first)}`"
        self._statement = first
        self._add(first, (start, next_end), parts.decode(), what)

    def _replace(self, node: ast.expr | ast.stmt, new: str, what: str) -> None:
        self._add(node, self._span(node), new, what)

    def _add(self, node: ast.expr | ast.stmt, span: tuple[int, int], new: str, what: str) -> None:
        statement = self._statement or node
        body = getattr(statement, "body", None)
        last_line = body[0].lineno - 1 if isinstance(body, list) else statement.end_lineno
        text = self._lines[node.lineno - 1].decode().strip()
        last_line = max(last_line or 0, node.lineno)
        place = (self._path, node.lineno, last_line, self._function)
        self.found.append(Mutation(*place, text, what, *span, new))

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset

    def _shown(self, node: ast.AST) -> str:
        return _short(self._text(node))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def _is_call(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in {"TYPE_CHECKING", "__name__ == '__main__'", "_"}
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        owner = called.value if isinstance(called, ast.Attribute) else None
        return isinstance(owner, ast.Name) and owner.id in _LOGGERS
    return False


def _named_zeros(source: bytes) -> set[str]:
    """Return the constants of ``cdef enum`` that are 0."""
    return set(re.findall(r"^    ([A-Z_]+) = 0\b", source.decode(), re.MULTILINE))


def _returns_only_zero(node: ast.stmt) -> bool:
    """Return whether each ``return`` of a function gives 0: in Cython, that no error occurred."""
    returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
    return all(
        isinstance(each, ast.Constant) and type(each.value) is int and each.value == 0
        for each in returned
    )


def _is_option(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
    return name in _OPTIONS


def runs_at_import(source: bytes, name: str) -> bool:
    """Return whether what is in ``name``, as ``functions`` names it, runs as its module loads."""
    body = ast.parse(source).body
    for part in filter(None, name.split(".")):
        named = {n.name: n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        if not isinstance(named[part], ast.ClassDef):
            return False
        body = named[part].body
    return True


def functions(source: bytes) -> Iterator[tuple[str, int, int]]:
    """Yield the name, first and last line of each function and class, outer ones first."""

    def below(body: list[ast.stmt], outer: str) -> Iterator[tuple[str, int, int]]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = f"{outer}.{node.name}" if outer else node.name
                yield name, node.lineno, node.end_lineno or node.lineno
                yield from below(node.body, name)

    yield from below(ast.parse(source).body, "")
