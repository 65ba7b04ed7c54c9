"""docs/getting-started.md runs from its top to its end, and prints what it shows."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import commands
from tests.kit.pages import ROOT, blocks, is_printed, typed

PAGE = ROOT / "docs" / "getting-started.md"


@pytest.mark.disk  # a log file of a gigabyte
def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    shown = [*blocks(PAGE)]
    assert [kind for kind, _ in shown] == ["python", "text"] * 4 + ["console"] * 8
    for (_, code), (_, printed) in zip(shown[0:8:2], shown[1:8:2], strict=True):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.stdout, done.stderr) == (printed, "")
    for _, block in shown[8:]:
        for command, printed in typed(block):
            name, *words = shlex.split(command)
            assert name == "cqstore"
            done = commands.run(words, cwd=tmp_path)
            assert done.returncode == 0, (command, done.stdout, done.stderr)
            assert is_printed(printed, done.stdout + done.stderr), (
                command + "\n" + done.stdout + done.stderr
            )


def test_an_ellipsis_stands_for_text_of_a_line_or_for_lines_and_nothing_else_does() -> None:
    assert is_printed("a … c\n…\nend\n", "a b c\n1\n2\nend\n")
    assert is_printed("a … c\n…\nend\n", "a  c  \nend\n")
    assert not is_printed("a … c\n", "a b\nc\n")
    assert not is_printed("a\n", "a\nb\n")
    assert not is_printed("a\nb\n", "a\n")
    assert not is_printed("a.c\n", "abc\n")
    assert not is_printed("", "a\n")
