"""Mutations of Cython: its sources as Python, what depends on a file, and trials of a module."""

import ast
import os
from pathlib import Path

import pytest
from Cython.Build.Dependencies import create_dependency_tree

from tests.kit.compiled_sources import modules
from tests.kit.product_tree import ROOT, product_files
from tools.mutants.compiled import (
    CONTRACTS,
    OF_PACKAGE,
    SUFFIXES,
    as_python,
    compiles,
    dependents,
    suites,
)
from tools.mutants.mutations import mutations
from tools.mutants.trial import Fate, Tree

SOURCES = [str(each) for each in product_files(*SUFFIXES)]
HEAD = "cdef inline T *g(const T *a, int b) except? NULL:\n"


def made(source: str) -> set[str]:
    """Return the sources with one mutation each."""
    data = source.encode()
    return {each.applied(data).decode() for each in mutations("_a.pyx", data)}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("x = <int> a < b", "x = ((<int> a) <= b)"),
        ("x = a < <int> b", "x = (a <= (<int> b))"),
        ("f(<const T *> a + 1)", "f(((<const T *> a) - 1))"),
        ("f(<T>(a + b))", "f(<T>((a - b)))"),
        ("f(&a, b)", "(f(b, (&a)))"),
        ("f(&a.b[1])", "f(&a.b[(2)])"),
        ("x = a & &b", "x = (a | (&b))"),
        ("x = a * sizeof(T *)", "x = (a // sizeof(T *))"),
        ('x = a == c"="', 'x = (a != c"=")'),
        ("x = a * 0x1fULL", "x = (a // 0x1fULL)"),
        ("cdef int x = a + b", "cdef int x = (a - b)"),
        ("cdef T x, *y = f(a, b), z", "cdef T x, *y = (f(b, a)), z"),
        ("with nogil: x = a >> 1", "with nogil: x = (a << 1)"),
        ("x = y", "pass"),
        ("x, y = y, x", "pass"),
        ("return True", "return 0"),
        ("return a", "return 0"),
        (
            "try: f()\n    except ValueError: f()",
            "try: f()\n    except GeneratorExit: f()",
        ),
    ],
)
def test_a_statement_becomes_another(code: str, expected: str) -> None:
    assert f"{HEAD}    {expected}\n" in made(f"{HEAD}    {code}\n")


@pytest.mark.parametrize(
    "code",
    [
        "cdef enum:\n    A = 1 + 2",
        'cdef extern from "a.h":\n    int f(int a)\n    struct B:\n        int c[2]',
        "cdef struct A:\n    int b  # 1 < 2",
        "cdef object a = f(1, 2)",
        'cdef class A(B):\n    """Words: 1 < 2."""\n    cdef int[2] b',
        "def f(int a=1, *, b=2):\n    cdef int c, d[2]",
        "cdef f(): return 0",
    ],
)
def test_declarations_and_constants_are_left_alone(code: str) -> None:
    assert made(f"{code}\n") == set()


def test_what_is_compared_has_no_order() -> None:
    assert made(f"{HEAD}    x = memcmp(a, b, c)\n") == {f"{HEAD}    pass\n"}


def test_zero_is_left_alone_where_a_function_returns_nothing_else() -> None:
    error, count = "cdef int f(a) except -1:", "cdef int g(a) except -1:"
    assert made(f"{error}\n    return 0\n") == set()
    assert made(f"{count}\n    if a:\n        return 0\n    return a\n") == {
        f"{count}\n    if {test}:\n        return {zero}\n    return {last}\n"
        for test, zero, last in [
            ("True", "0", "a"), ("False", "0", "a"), ("a", "(1)", "a"), ("a", "0", "0"),
        ]
    }  # fmt: skip
    none = f"cdef enum:\n    NONE = 0\n    ONE = 1\n\n\n{count}"
    assert made(f"{none}\n    return NONE\n") == set()
    assert made(f"{none}\n    return ONE\n") == {f"{none}\n    return 0\n"}
    assert made("cdef bint h(a):\n    return False\n") == {"cdef bint h(a):\n    return (True)\n"}


@pytest.mark.parametrize("path", SOURCES)
def test_every_source_keeps_its_places_as_python(path: str) -> None:
    source = (ROOT / path).read_bytes()
    draft = as_python(source)
    ast.parse(draft)
    lines, drafted = source.split(b"\n"), draft.split(b"\n")
    assert [len(line) for line in lines] == [len(line) for line in drafted]


def test_what_depends_on_a_file_is_what_cython_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    tree = create_dependency_tree()  # type: ignore[no-untyped-call]
    needed = {
        str(module): {
            os.path.relpath(Path(each).resolve(), ROOT)
            for each in tree.all_dependencies(f"cqstore/{str(module).removeprefix('cqstore/')}")
        }
        for module in modules()
    }
    for path in SOURCES:
        expected = sorted(module for module, names in needed.items() if path in names)
        assert dependents(ROOT, path) == expected


def test_tests_are_those_of_a_file_then_of_its_callers_then_the_contracts() -> None:
    found = suites(ROOT, "store/core/_waiters.pxd")
    own, callers = ["tests/store/core"], ["tests/replication/feed", "tests/store/service"]
    assert found == [*own, *callers, *CONTRACTS]


def test_the_compiled_code_of_a_package_has_tests_in_one_more_folder() -> None:
    for path in ("store/service/reading/_pull.pyx", "cq_rocksdb/engine/_append.pyx"):
        further, own = OF_PACKAGE[path.partition("/")[0]], str(Path("tests", path).parent)
        found = suites(ROOT, path)
        assert found[0] == further
        assert own.startswith(found[1])
        assert all((ROOT / folder).is_dir() for folder in found)


CODE = b"""from libc.stdlib cimport abort


cdef long lesser(const long *found, long value) noexcept nogil:
    return value if value < found[0] else found[0]


def least(values, long most):
    cdef long found = most
    if most < 0:
        abort()
    for value in values:
        found = lesser(&found, value)
    return found
"""
TESTS = """from cqstore.store._a import least


def test_of_more():
    assert least([3, 2, 4], 5) == 2
"""


@pytest.mark.slow
@pytest.mark.long
def test_a_module_is_compiled_for_each_mutation_and_is_as_before_afterwards(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    for folder in ("cqstore", "store"):
        (root / folder).mkdir(parents=True)
        (root / folder / "__init__.py").touch()
    (root / "cqstore" / "store").symlink_to("../store")
    (root / "store" / "_a.pyx").write_bytes(CODE)
    (root / "test_a.py").write_text(TESTS)
    assert compiles(root, ["store/_a.pyx"])
    before = {each: each.read_bytes() for each in (root / "store").glob("_a.*")}
    assert {each.suffix for each in before} == {".pyx", ".c", ".so"}
    found = {(each.function, each.what): each for each in mutations("store/_a.pyx", CODE)}
    tree, test = Tree(root, set(), set()), "test_a.py::test_of_more"
    for function, what, fate in [
        ("lesser", "`value < found[0]` becomes `value <= found[0]`", Fate.SURVIVED),
        ("lesser", "returns 0", Fate.KILLED),
        ("least", "`most < 0` is always True", Fate.KILLED),  # SIGABRT
        ("least", "`lesser((&found), value)` becomes `lesser(value, (&found))`", Fate.INVALID),
    ]:
        assert tree.try_out(found[function, what], [test], {test: 0.1}).fate is fate, what
    assert {each: each.read_bytes() for each in (root / "store").glob("_a.*")} == before
