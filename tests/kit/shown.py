"""Run the examples of a page and compare what they print with what the page shows."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from typer.testing import CliRunner

from tests.kit.command_tree import upper_commands
from tests.kit.pages import blocks, is_printed, typed

Done: TypeAlias = "subprocess.CompletedProcess[str]"
_ONE_BY_ONE = "import sys\nfor code in sys.argv[1:]: exec(code, {}); print(end=chr(0))"
"""Several programs in one process: a start of Python takes longer than most of them."""


def consoles(page: Path) -> list[str]:
    """Return the blocks of a page that show commands with their output."""
    return [text for kind, text in blocks(page) if kind == "console"]


def run_programs(page: Path, folder: Path) -> None:
    """Run the programs of a page in a folder: each prints the block ``text`` after it."""
    pairs = [pair for pair in pairwise(blocks(page)) if pair[0][0] == "python"]
    assert {after for _, (after, _) in pairs} == {"text"}
    programs, printed = zip(*((code, text) for (_, code), (_, text) in pairs), strict=True)
    done = subprocess.run(
        [sys.executable, "-c", _ONE_BY_ONE, *programs],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.split("\0")[:-1] == [*printed]


def run_commands(
    shown: Iterable[str], run: Callable[[Sequence[str]], Done], codes: Sequence[int] = ()
) -> None:
    """Run the commands of ``console`` blocks: each prints what is shown below it.

    ``run`` takes a command's words without ``cqstore``.
    ``codes`` has the exit codes of the commands; by default all are 0.
    """
    commands = [found for block in shown for found in typed(block)]
    assert commands
    for (command, printed), code in zip(commands, codes or [0] * len(commands), strict=True):
        name, *words = shlex.split(command)
        done = run(words)
        found = done.stdout + done.stderr
        assert (name, done.returncode) == ("cqstore", code), f"{command}\n{found}"
        assert is_printed(printed, found), f"{command}\n{found}"


def run_here(words: Sequence[str], folder: Path | None = None) -> Done:
    """Run a command of an upper layer in this process, where it finds the tests' Spark session.

    The data sources' workers have another current folder, so folders in ``folder`` can be given by
    their whole path.
    """
    verb, *rest = words
    if folder is not None:
        rest = [str(folder / word) if (folder / word).is_dir() else word for word in rest]
    done = CliRunner().invoke(upper_commands()[verb], rest)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)
