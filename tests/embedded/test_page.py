"""The examples of the page run, and print what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "embedded-log.md"
BLOCKS = re.findall(
    r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL
)


@pytest.mark.disk  # log files of a gigabyte
@pytest.mark.parametrize("number", [0, 1, 2, pytest.param(3, marks=pytest.mark.long), 4, 5])
def test_the_example_runs_and_prints_what_it_says(number: int, tmp_path: Path) -> None:
    code, printed = BLOCKS[number]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (printed, "")


def test_the_examples_are_as_short_as_the_page_says() -> None:
    assert len(BLOCKS) == PAGE.read_text(encoding="utf-8").count("```python")
    lines = [len([line for line in code.splitlines() if line.strip()]) for code, _ in BLOCKS]
    assert lines[0] <= 20
    assert max(lines) <= 40
