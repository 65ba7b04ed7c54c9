"""What a reader takes in at once: functions are under 50 lines, files of a package at most 500."""

import ast

import pytest

from tests.meta.test_words import PACKAGES, ROOT, names

pytestmark = pytest.mark.xdist_group("trees")

FUNCTION_LINES, FILE_LINES = 49, 500
LONGER = {"store/service/message_store.py"}
"""All that a program may call: ``docs/decisions/0077-one-face-one-record-one-replay.md``."""


def test_functions_are_under_fifty_lines() -> None:
    functions = [each for each in names() if each.kind in {ast.FunctionDef, ast.AsyncFunctionDef}]
    assert len(functions) > 4_000
    assert [
        f"{each.path}:{each.line} {each.name}"
        for each in functions
        if each.end_line - each.line >= FUNCTION_LINES
    ] == []


def test_files_have_at_most_five_hundred_lines() -> None:
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for suffix in ("py", "pyi", "pyx", "pxd", "h")
        for path in (ROOT / package).rglob(f"*.{suffix}")
        if len(path.read_bytes().splitlines()) > FILE_LINES
    }
    assert found == LONGER
