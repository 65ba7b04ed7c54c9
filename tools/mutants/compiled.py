"""Cython: its sources as Python, the modules that depend on a file, its tests, and the compiler.

``as_python`` keeps every statement of a function where it is, so that the finder of Python's
mutations works on it. What Python cannot parse there is replaced by something of the same length
that binds alike; ``Restored`` puts it back into what a mutation writes.
"""

import ast
import io
import keyword
import os
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from copy import deepcopy
from pathlib import Path
from tokenize import TokenInfo

SUFFIXES = (".pyx", ".pxd")
CONTRACTS = ("tests/golden_stores", "tests/property", "tests/interrupts", "tests/fuzz")
"""Tests that run most compiled modules, in the way that users do."""
OF_PACKAGE = {"store": "tests/store/core", "cq_rocksdb": "tests/cq_rocksdb/queues"}
"""Tests of compiled code that are not in the folder of its own name."""
_FLAGS = "-O0 -fwrapv -Werror -Wno-discarded-qualifiers -Icqstore/store/core"
_DECLARING = {"cdef", "cpdef", "ctypedef"}
_NEVER = 1 << 30


def as_python(source: bytes) -> bytes:
    """Return Python of the same length that has the statements of functions, and nothing else."""
    draft = _Draft(source)
    function_depth = _NEVER
    for depth, tokens in _statements(source):
        if depth <= function_depth:
            function_depth = _NEVER
        words = [token.string for token in tokens]
        opens, declares = words[-1] == ":", words[0] in _DECLARING
        if opens and "class" in words[:2]:
            draft.head(tokens, "class", words.index("class") + 1)
        elif opens and "(" in words and (declares or words[0] == "def"):
            draft.head(tokens, "def", words.index("(") - 1)
            function_depth = min(function_depth, depth)
        elif depth > function_depth:
            (draft.declaration if declares else draft.expression)(tokens)
        elif opens and not keyword.iskeyword(words[0]):
            draft.replace(tokens, "if _:")
        elif not opens and words[0] != "@" and tokens[0].type != tokenize.STRING:
            draft.replace(tokens, "_")
    return draft.text()


def _statements(source: bytes) -> Iterator[tuple[int, list[TokenInfo]]]:
    """Yield the depth of each logical line and its tokens."""
    depth = 0
    tokens: list[TokenInfo] = []
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type in {tokenize.INDENT, tokenize.DEDENT}:
            depth += 1 if token.type == tokenize.INDENT else -1
        elif token.type == tokenize.NEWLINE:
            yield depth, tokens
            tokens = []
        elif token.string.strip() and token.type not in {tokenize.COMMENT, tokenize.ENCODING}:
            tokens.append(token)


class _Draft:
    """A source that is overwritten without moving anything."""

    def __init__(self, source: bytes) -> None:
        self._lines = [list(line) for line in source.decode().splitlines(keepends=True)]

    def text(self) -> bytes:
        return "".join("".join(line) for line in self._lines).encode()

    def replace(self, tokens: list[TokenInfo], new: str = "") -> None:
        """Blank the tokens, and write ``new`` where the first begins."""
        for row, start, end in ((*each.start, each.end) for each in tokens):
            for at in range(row, end[0] + 1):
                line = self._lines[at - 1]
                first = start if at == row else 0
                last = end[1] if at == end[0] else len(line) - 1
                line[first:last] = " " * (last - first)
        if tokens:
            row, start = tokens[0].start
            self._lines[row - 1][start : start + len(new)] = new

    def head(self, tokens: list[TokenInfo], word: str, name: int) -> None:
        """Write the head of a class or function without bases, types and arguments."""
        kept = {name, len(tokens) - 1}
        if word == "def":
            closing = max(at for at, token in enumerate(tokens) if token.string == ")")
            kept |= {name + 1, closing}
        self.replace([token for at, token in enumerate(tokens) if at not in kept], word)

    def declaration(self, tokens: list[TokenInfo]) -> None:
        """Write an assignment for each variable that is declared with a value."""
        parts: list[list[TokenInfo]] = [[]]
        depth = 0
        for token in tokens:
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == "," and not depth:
                parts.append([])
            parts[-1].append(token)
        for part in parts:
            words = [token.string for token in part]
            valued = "=" in words
            types = part[: words.index("=") - 1] if valued else part
            self.replace(types, ("_" if part is parts[0] else "") + (";" if valued else ""))
            if valued:
                self.expression(part[words.index("=") + 1 :])

    def expression(self, tokens: list[TokenInfo]) -> None:
        """Write casts and ``&`` as ``~``, characters as bytes, and ``sizeof`` as a name."""
        rest = iter(tokens)
        last, before = tokens[0], ""
        for token in rest:
            word = token.string
            if word in {"<", "&"} and _is_unary_after(before):
                self.replace(_until(">", token, rest) if word == "<" else [token], "~")
            elif word == "sizeof":
                size = _until(")", token, rest)
                line = self._lines[token.start[0] - 1]
                place = slice(token.start[1], size[-1].end[1])
                line[place] = re.sub(r"\W", "_", "".join(line[place]))
                word = ")"
            elif word == "c" and token.line[token.end[1] : token.end[1] + 1] in {"'", '"'}:
                self.replace([token], "b")
            elif before.startswith("0x") and not word.strip("UL"):
                self.replace([last], f"0x{'0' * len(word)}{before[2:]}")
                word = before
            last, before = token, word


def _until(word: str, first: TokenInfo, rest: Iterator[TokenInfo]) -> list[TokenInfo]:
    found = [first]
    while found[-1].string != word:
        found.append(next(rest))
    return found


def _is_unary_after(word: str) -> bool:
    """Return whether what follows this token is no binary operator."""
    if word in {"True", "False", "None"}:
        return False
    return not word or keyword.iskeyword(word) or not re.search(r"[\w\"')\]}]$", word)


class Restored(ast.NodeTransformer):
    """Puts the words of a source back into a tree of its draft."""

    def __init__(self, source: bytes) -> None:
        self._lines = source.splitlines()

    def text(self, node: ast.AST) -> str:
        """Return a node in the words of the source."""
        return ast.unparse(self.visit(deepcopy(node)))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        found = re.match(r"<[^>]*> ?|&", self._from(node))
        return ast.Name(f"({found[0]}{ast.unparse(node)[1:]})") if found else node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        found = re.match(r"sizeof\([^)]*\)", self._from(node))
        return ast.Name(found[0]) if found else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        found = re.match(r"""c(["'])(\\?.)+?\1|\w+[UL]\b""", self._from(node))
        return ast.Name(found[0]) if found else node

    def _from(self, node: ast.expr) -> str:
        """Return the line from a node on; nothing for one that a mutation has made."""
        if not hasattr(node, "lineno"):
            return ""
        return self._lines[node.lineno - 1][node.col_offset :].decode()


def dependents(root: Path, path: str, followed: tuple[str, ...] = (".pxd",)) -> list[str]:
    """Return the modules to compile after a change of ``path``, as paths below ``root``.

    With ``SUFFIXES``, also return the modules that call them.
    """
    sources = {
        str(each.relative_to(root)): each.read_text()
        for package in root.glob("*/__init__.py")  # not what is installed in .venv
        for suffix in SUFFIXES
        for each in package.parent.rglob(f"_*{suffix}")
    }
    found, waiting = {path}, [path] if path.endswith(followed) else []
    while waiting:
        name = waiting.pop().rpartition(".")[0]
        module = "cqstore." + name.removeprefix("cqstore/").replace("/", ".")
        names = re.compile(rf"^ *from {module} cimport|^ *cimport {module}\b", re.MULTILINE)
        new = {
            each
            for each, text in sources.items()
            if each not in found and (names.search(text) or each == f"{name}.pyx")
        }
        found |= new
        waiting += [each for each in new if each.endswith(followed)]
    return sorted(each for each in found if each.endswith(".pyx"))


def suites(root: Path, path: str) -> list[str]:
    """Return folders of tests: a file's own, those of modules that depend on it, the contracts."""
    package = path.partition("/")[0]
    found: list[str] = [OF_PACKAGE[package]] if package in OF_PACKAGE else []
    for each in [path, *dependents(root, path, SUFFIXES)]:
        mirrored = Path("tests", each.removeprefix("cqstore/"))
        found.append(str(next(folder for folder in mirrored.parents if (root / folder).is_dir())))
    return list(dict.fromkeys([*found, *CONTRACTS]))


def compiles(root: Path, modules: Iterable[str]) -> bool:
    """Compile modules in place without optimisation; return whether that gave no warning."""
    linked = [each if each.startswith("cqstore/") else f"cqstore/{each}" for each in modules]
    done = subprocess.run(
        [sys.executable, "-m", "Cython.Build.Cythonize", "-i", "-q", "-j1", *linked],
        cwd=root, env=os.environ | {"CFLAGS": _FLAGS}, capture_output=True, check=False,
    )  # fmt: skip
    return done.returncode == 0
