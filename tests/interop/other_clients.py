"""RocketMQ's clients in Go and Python, fetched from their registries and built once."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.started import Row
from tools.bench.peer.maven import UnavailableError, alone

_HERE = Path(__file__).parent
_PYTHON_CLIENT = "rocketmq==0.4.4"
"""The last release whose wheel contains ``librocketmq``; newer ones need it on the machine. There
is no client of the remoting protocol in pure Python on PyPI."""
_SECONDS = 600


@dataclass(frozen=True)
class GoClient:
    """``rocketmq-client-go`` in the program ``go_client/main.go``."""

    program: Path

    @classmethod
    def build(cls) -> "GoClient":
        """Compile the program, if a source is newer than what was compiled.

        Raises:
            UnavailableError: Go is missing, or the modules cannot be had.
        """
        folder = _HERE / "go_client"
        program = folder / "target" / "go_client"
        newest = max(each.stat().st_mtime for each in folder.glob("*.*"))
        with alone():
            if not program.exists() or program.stat().st_mtime < newest:
                _build(["go", "build", "-buildvcs=false", "-o", str(program), "."], folder)
        return cls(program)

    def push(self, port: int, group: str, topic: str, count: int) -> list[Row]:
        """Return the messages that a push consumer of a new group has received."""
        return _lines([str(self.program), "push", str(port), group, topic, "*", str(count)])

    def send(self, port: int, topic: str, kind: str, count: int) -> list[Row]:
        """Send messages, see ``go_client/main.go``; return the results."""
        return _lines([str(self.program), "send", str(port), "go", topic, kind, str(count)])


@dataclass(frozen=True)
class PythonClient:
    """``rocketmq`` with its C++ library in the programs of ``python_client``."""

    packages: Path

    @classmethod
    def build(cls) -> "PythonClient":
        """Install the package into a folder of its own, once.

        Raises:
            UnavailableError: there is no wheel for this machine.
        """
        packages = _HERE.parents[1] / "build" / "interop-python"  # mypy reads all below tests
        words = ["install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"]
        with alone():
            if not (packages / "rocketmq").exists():
                _build([sys.executable, "-m", "pip", *words, str(packages), _PYTHON_CLIENT], _HERE)
        return cls(packages)

    def consume(self, kind: str, port: int, group: str, topic: str, count: int) -> list[Row]:
        """Return the messages that a pull or push consumer of a new group has received."""
        return self._run("consume", kind, str(port), group, topic, str(count))

    def send(self, port: int, topic: str, kind: str, count: int) -> list[Row]:
        """Send messages, see ``python_client/produce.py``; return the results."""
        return self._run("produce", kind, str(port), topic, str(count))

    def _run(self, program: str, *words: str) -> list[Row]:
        path = _HERE / "python_client" / f"{program}.py"
        return _lines([sys.executable, str(path), *words], PYTHONPATH=str(self.packages))


def _build(words: Sequence[str], folder: Path) -> None:
    try:
        subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=_SECONDS)
    except (OSError, subprocess.SubprocessError) as exc:
        output = getattr(exc, "stderr", None) or b""
        raise UnavailableError(f"{exc}: {output[-500:].decode(errors='replace')}") from exc


def _lines(words: Sequence[str], **environment: str) -> list[Row]:
    """Run a client to its end; its logs are below a home of its own."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            words, capture_output=True, timeout=_SECONDS, check=False,
            env=os.environ | {"HOME": home} | environment,
        )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
    return [json.loads(line) for line in done.stdout.splitlines()]
