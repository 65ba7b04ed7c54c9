"""How rows of pulls over loopback are measured: each side's server, and RocketMQ's Java client.

``cqstore serve`` and a broker have stores with the same messages, and serve them to the same client
program. The CPU time of a row is that of the server.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import sysconf
from pathlib import Path

from tools.bench.peer.sessions import Session
from tools.bench.peer.sides import OURS, SideFailedError, SideProcess, Sides, Window

_TICKS = sysconf("SC_CLK_TCK")
_SERVER, _CLIENT = "peer.Served", "peer.Pulls"


@dataclass(frozen=True)
class ServedSide:
    """A server and the client that pulls from it."""

    name: str
    client: SideProcess
    server: int
    """Process id."""

    def do(self, line: str) -> Window:
        """Have the client do the line; CPU time is that of the server."""
        spent = _cpu_seconds(self.server)
        window = self.client.do(line)
        window["cpu_seconds"] = _cpu_seconds(self.server) - spent
        return window


@dataclass(frozen=True)
class ServedPulls(Session):
    """Rows of pulls that a server answers."""

    @contextmanager
    def opened(self, sides: Sides, name: str, settings: dict[str, str]) -> Iterator[ServedSide]:
        """Start server and client of one side."""
        with ExitStack() as stack:
            if name == OURS:
                port, server = stack.enter_context(_serving(sides.store(name)))
            else:
                process = stack.enter_context(sides.java(_SERVER, name, settings))
                port, server = int(float(process.answer("its start")["port"])), process.pid
            words = {"port": str(port), "queues": settings["queues"]}
            client = stack.enter_context(sides.java(_CLIENT, f"{name}-client", words))
            yield ServedSide(name, client, server)


@contextmanager
def _serving(root: Path) -> Iterator[tuple[int, int]]:
    """Run ``cqstore serve`` on a free port; yield the port and the process id.

    Raises:
        SideFailedError: it has ended.
    """
    words = [sys.executable, "-m", "cqstore", "serve", str(root), "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            found, lines = None, list[str]()
            while found is None:
                line = process.stderr.readline() if process.stderr is not None else ""
                lines.append(line)
                if not line:
                    raise SideFailedError(f"cqstore serve has ended: {''.join(lines)}")
                found = re.search(r"127\.0\.0\.1:(\d+).*: serving", line)
            yield int(found[1]), process.pid
        finally:
            process.terminate()


def _cpu_seconds(process: int) -> float:
    """Return the CPU time of a process, all threads included."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
