"""docs/getting-started.md runs from its top to its end, and prints what it shows."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import commands
from tests.kit.pages import ROOT, blocks, is_printed, typed

PAGE = ROOT / "docs" / "getting-started.md"
ONE_BY_ONE = "import sys\nfor code in sys.argv[1:]: exec(code, {}); print(end=chr(0))"
"""Four programs in one process: a start takes longer than what any of them does."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the programs of the first half have run."""
    where = tmp_path_factory.mktemp("started")
    shown = [*blocks(PAGE)]
    assert [kind for kind, _ in shown] == ["python", "text"] * 4 + ["console"] * 8
    programs = [code for kind, code in shown if kind == "python"]
    done = subprocess.run(
        [sys.executable, "-c", ONE_BY_ONE, *programs],
        cwd=where, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split("\0")[:-1] == [text for kind, text in shown if kind == "text"]
    return where


@pytest.mark.disk  # a log file of a gigabyte
def test_the_programs_run_and_print_what_is_shown(folder: Path) -> None:
    assert (folder / "demo-store").is_dir()


@pytest.mark.long
@pytest.mark.disk
def test_the_commands_go_on_from_there_and_print_what_is_shown(folder: Path) -> None:
    for _, block in [*blocks(PAGE)][8:]:
        for command, printed in typed(block):
            name, *words = shlex.split(command)
            done = commands.run(words, cwd=folder)
            found = done.stdout + done.stderr
            assert (name, done.returncode) == ("cqstore", 0), found
            assert is_printed(printed, found), f"{command}\n{found}"


def test_an_ellipsis_stands_for_text_of_a_line_or_for_lines_and_nothing_else_does() -> None:
    assert is_printed("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert is_printed("a … c\n…\nend\n", "a  c  \nend\n")
    assert not is_printed("a … c\n", "a b\nc\n")
    assert not is_printed("a\n", "a\nb\n")
    assert not is_printed("a\nb\n", "a\n")
    assert not is_printed("a.c\n", "abc\n")
    assert not is_printed("", "a\n")
