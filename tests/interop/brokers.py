"""Runs whole brokers of RocketMQ's, and a name server, through the Java programs beside."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.started import pairs, started
from tools.bench.peer.maven import JavaProgram

if TYPE_CHECKING:
    import subprocess

VERSION = "5.5.1"
_OTHERS = {"5.5.1": "5.5.0"}
"""Client, server utilities, filter, auth and name server of the newest release published."""

TIMED: dict[str, object] = {"timerFlushIntervalMs": 1000}
"""RocketMQ's default, for tests of timer messages."""
_UNTIMED: dict[str, object] = {"timerFlushIntervalMs": 30_000}
"""For other tests: each flush compares the 39 MB of the timer's wheel, every second an eighth of a
second of CPU time. The end of a broker flushes too."""


@dataclass(frozen=True)
class Brokers:
    """One release of the broker, built."""

    program: JavaProgram

    @classmethod
    def build(cls, version: str = VERSION) -> "Brokers":
        """Compile the program against ``version``, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        folder, others = Path(__file__).parent / "broker", _OTHERS.get(version, version)
        return cls(JavaProgram.build(folder, "interop.Broker", version, f"others={others}"))

    @contextmanager
    def running(self, root: Path, **settings: object) -> Iterator["Broker"]:
        """Start a broker on the store in ``root``; shut it down at the end.

        Give ``TIMED`` in a test of timer messages.
        """
        words = [str(root), *pairs(_UNTIMED | settings)]
        with started(self.program, words, ends=True) as process:
            broker = Broker(process)
            yield broker
            broker.close()

    @contextmanager
    def name_server(self) -> Iterator[int]:
        """Start a name server; yield its port, and stop it at the end."""
        with started(replace(self.program, main="interop.NameServer"), []) as process:
            assert process.stdout is not None
            port: int = json.loads(process.stdout.readline())["port"]
            yield port


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
