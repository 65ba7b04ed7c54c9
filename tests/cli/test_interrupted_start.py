"""Ctrl-C while the command is imported: no traceback, and the exit status of SIGINT."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

HELD = """
import builtins, os, signal, sys
real = builtins.__import__
def held(name, *rest, **more):
    if name == {name!r} or name.startswith({name!r} + "."):
        builtins.__import__ = real
        os.kill(os.getpid(), signal.SIGINT)
    return real(name, *rest, **more)
builtins.__import__ = held
sys.argv = ["cqstore", *sys.argv[1:]]
from cqstore.cli import main
main()
"""


@pytest.mark.parametrize(
    "name", ["typer", "cqstore.cli.lazy_verbs", "cqstore.cli.selection", "cqstore.store.service"]
)
def test_an_interrupt_of_an_import_ends_the_process(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD.format(name=name), "get", tmp_path, "--topic", "t"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")
