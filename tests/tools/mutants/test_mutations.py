"""What the sampler of mutations makes of a source, and what it leaves alone."""

import ast

import pytest

from tools.mutants.mutations import Mutation, functions, mutations


def made(source: str) -> dict[str, str]:
    """Return the sources with one mutation each, by what was changed."""
    data = source.encode()
    found = mutations("a.py", data)
    assert len({(each.line, each.what) for each in found}) == len(found)
    sources = {each.what: each.applied(data).decode() for each in found}
    for changed in sources.values():
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source))
    return sources


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("f(a < b)", "f((a <= b))"),
        ("f(a >= b)", "f((a > b))"),
        ("f(a < b <= c)", "f((a < b < c))"),
        ("f(a == b)", "f((a != b))"),
        ("f(a is None)", "f((a is not None))"),
        ("f(a in b)", "f((a not in b))"),
        ("f(a and b)", "f((a or b))"),
        ("f(not a)", "f((a))"),
        ("f(-a)", "f((a))"),
        ("f(a + b)", "f((a - b))"),
        ("f(a // b)", "f((a * b))"),
        ("f(a & b)", "f((a | b))"),
        ("f(7)", "f((8))"),
        ("f(True)", "f((False))"),
        ("x = f(a, b, c)", "x = (f(b, a, c))"),
        ("x = min(a)", "x = (max(a))"),
        ("x = all(a)", "x = (any(a))"),
        ("f(a)", "pass"),
        ("a.b = c", "pass"),
        ("a += b", "pass"),
        ("raise a", "pass"),
        ("del a", "pass"),
        ("return a", "return None"),
        ("if a: b", "if True: b"),
        ("if a: b", "if False: b"),
        ("for a in b: break", "for a in b: continue"),
        ("for a in b: continue", "for a in b: break"),
    ],
)
def test_a_statement_becomes_another(code: str, expected: str) -> None:
    found = made(f"def g():\n    {code}\n")
    assert f"def g():\n    {expected}\n" in found.values()


@pytest.mark.parametrize("value", ["None", "False"])
def test_nothing_is_returned_for_nothing(value: str) -> None:
    assert "returns None" not in made(f"def g():\n    return {value}\n")


def test_a_handler_can_catch_nothing_and_calls_can_change_places() -> None:
    found = made(
        "def g():\n    try:\n        a.sync()\n        b.unlink(1)\n    except E:\n        x\n"
    )
    swapped = "        b.unlink(1)\n        a.sync()\n"
    assert any(swapped in changed for changed in found.values())
    assert any("except ():" in changed for changed in found.values())


@pytest.mark.parametrize(
    "code",
    [
        '"""Words."""',
        "import a",
        "LIMIT = 1 << 20",
        "x: int | None = None",
        "def g(a: int | str) -> int | None: x",
        "def g(): assert a < b",
        'def g(): x = f"{a + b}"',
        'def g(): _log.warning("%s", a + 1)',
        'def g(): _LOG.warning("%s", a + 1)',
        "def g(a=typer.Option(True)): x",
        "def g(): x = zip(a, strict=True)",
        "def g(): x = Thread(daemon=True)",
        "def __repr__(self): return a + b",
        "if TYPE_CHECKING: f(a)",
    ],
)
def test_what_no_test_should_pin_is_left_alone(code: str) -> None:
    assert made(code + "\n") == {}


def test_a_mutation_knows_its_line_function_and_statement() -> None:
    source = (
        "class A:\n    def g(self):\n        return f(\n            é < 2\n        )\n".encode()
    )
    (found,) = [each for each in mutations("a.py", source) if "<=" in each.what]
    assert (found.line, found.last_line, found.function) == (4, 5, "A.g")
    assert found.text == "é < 2"
    assert "(é <= 2)" in found.applied(source).decode()
    assert list(functions(source)) == [("A", 1, 5), ("A.g", 2, 5)]


def test_two_like_changes_of_one_line_have_names_of_their_own() -> None:
    found = made("def g():\n    f(1) and f(1)\n")
    assert {"`1` becomes `2`", "`1` becomes `2` (2)"} <= set(found)


def test_the_head_of_a_compound_statement_ends_before_its_body() -> None:
    source = b"def g():\n    if a < b:\n        x\n        y\n"
    found: list[Mutation] = mutations("a.py", source)
    assert {(each.line, each.last_line) for each in found} == {(2, 2)}
