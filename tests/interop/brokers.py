"""Runs a whole broker of RocketMQ's, without a name server, through the Java program beside."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peer.maven import JavaProgram

VERSION = "5.5.1"
"""Client, server utilities, filter and auth come from 5.5.0: newer ones are not published."""


@dataclass(frozen=True)
class Brokers:
    """One release of the broker, built."""

    program: JavaProgram

    @classmethod
    def build(cls) -> "Brokers":
        """Compile the program, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        return cls(JavaProgram.build(Path(__file__).parent / "broker", "interop.Broker", VERSION))

    @contextmanager
    def running(self, root: Path, **settings: object) -> Iterator["Broker"]:
        """Start a broker on the store in ``root``; shut it down at the end."""
        with tempfile.TemporaryDirectory() as home:
            words = [f"{key}={value}" for key, value in settings.items()]
            command = [*self.program.command(home, ["-Xmx1g"]), str(root), *words]
            with (
                (Path(home) / "err").open("w+b") as err,
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                    env=JavaProgram.environment(),
                ) as process,
            ):  # fmt: skip
                try:
                    broker = Broker(process)
                    yield broker
                    broker.close()
                except BaseException as exc:
                    err.seek(0)
                    exc.add_note(err.read().decode(errors="replace")[-4000:])
                    raise
                finally:
                    process.kill()


class Broker:
    """A running broker that does what it is told."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        ports = self._answer()
        self.port: int = ports["port"]
        """Where it answers clients."""
        self.ha_port: int = ports["haPort"]
        """Where it serves slaves."""

    def do(self, *words: object) -> dict[str, Any]:
        """Say a line, see ``Broker.java``; return its answer. Any thread, one at a time."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """Let it shut down."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(120) == 0

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the broker has ended"
        answer: dict[str, Any] = json.loads(line)
        return answer
