"""Comparisons run by tests: in this process, or as the command."""

import subprocess
from pathlib import Path
from subprocess import CompletedProcess

from cqstore.ab.results.result import Result, WorkloadFigures
from cqstore.ab.results.result_file import read_result
from cqstore.ab.run.comparison import Run, RunOptions
from cqstore.ab.run.rounds import Effort
from cqstore.store.settings.config import StoreConfig
from tests.kit import commands

COMMAND = [*commands.COMMAND, "ab", "run"]
SHORT = Effort(3, 0.004)


def options(root: Path, *workloads: str, **given: object) -> RunOptions:
    """What is asked for, with short turns and two sides of files unless said otherwise."""
    requested: dict[str, object] = {
        "config": StoreConfig(), "sides": ["file", "file"], "effort": SHORT, "workloads": workloads,
    }  # fmt: skip
    return RunOptions(root, **(requested | given))  # type: ignore[arg-type]


def compare(root: Path, *workloads: str, **given: object) -> Result:
    """Return the result of a comparison; nothing of it is left."""
    run = Run(options(root, *workloads, **given))
    run.prepare()
    found = run.measure()
    assert not root.with_name(f"{root.name}.ab").exists()
    return found


def workload(found: Result, name: str) -> WorkloadFigures:
    (one,) = [each for each in found.workloads if each.name == name]
    return one


def command(root: Path, *words: str, code: int = 0) -> CompletedProcess[str]:
    """Run ``cqstore ab run``, which must end with ``code``; it finds what is installed by now."""
    started = [*COMMAND, *_asked(root, words)]
    done = subprocess.run(started, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def forked(root: Path, *words: str, code: int = 0) -> CompletedProcess[str]:
    """Run the same in a fork (``tests/kit/commands.py``)."""
    done = commands.run(["ab", "run", *_asked(root, words)])
    assert done.returncode == code, done.stderr
    return done


def _asked(root: Path, words: tuple[str, ...]) -> list[str]:
    return [str(root), "--result", str(root.with_name("result.json")), *words]


def result_of(root: Path) -> Result:
    return read_result(root.with_name("result.json"))
