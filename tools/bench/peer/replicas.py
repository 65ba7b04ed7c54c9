"""How rows of replication are measured: each side's master with a slave of the same side.

The slave is a separate process with its own store; log and queues of both are compared when the
rows are done.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.bench.peer.measured import Measured, Spread
from tools.bench.peer.sessions import Rounds, Row, Session, UnequalError, stores
from tools.bench.peer.sides import SIDES, THEIRS, SideProcess, Sides, Window

_QUEUES_IN = {"file": "files", "rocksdb": "RocksDB"}
_REPORT_BYTES = 8
_READ_BYTES = 1 << 18
_COMPARED_BYTES = 1 << 24


@dataclass(frozen=True)
class Pair:
    """A master and its slave, asked as one."""

    name: str
    master: SideProcess
    slave: SideProcess
    folders: tuple[Path, Path]

    def do(self, line: str) -> Window:
        """Have the master do the line, and wait until the slave has all of it.

        ``seconds`` are the master's own, ``level_seconds`` the slave's too; processor time is that
        of both until then.

        Raises:
            UnequalError: asked for ``totals``: log or queues of the two differ.
        """
        if line == "totals":
            return self._totals()
        spent = self._spent()
        begin = time.perf_counter()
        window = self.master.do(line)
        self.slave.do(f"followed {int(float(self.master.do('spent')['log_end']))}")
        window["level_seconds"] = time.perf_counter() - begin
        window["cpu_seconds"] = self._spent() - spent
        return window

    def _spent(self) -> float:
        return sum(float(each.do("spent")["cpu_seconds"]) for each in (self.master, self.slave))

    def _totals(self) -> Window:
        totals, slaves = self.master.do("totals"), self.slave.do("totals")
        refuse_unequal(self.name, totals, slaves)
        refuse_other_bytes(*self.folders, int(float(totals["log_end"])))
        return totals


@dataclass(frozen=True)
class Replicated(Session):
    """Rows of which each put goes to a slave, too."""

    @contextmanager
    def opened(self, sides: Sides, name: str, settings: dict[str, str]) -> Iterator[Pair]:
        """Start master and slave of one side."""
        slave = {**settings, "dir": str(sides.slave(name))}
        del slave["role"]
        with ExitStack() as stack:
            master = stack.enter_context(sides.running(name, settings))
            slave["master"] = str(int(float(master.do("open")["port"])))
            follower = stack.enter_context(sides.running(name, slave))
            follower.do("open")
            yield Pair(name, master, follower, (sides.store(name), sides.slave(name)))


@dataclass(frozen=True, kw_only=True)
class Follows:
    """A log that RocketMQ's master has, to an empty slave of either side, and as a bare copy."""

    backend: str
    row: Row
    settings: dict[str, str]
    messages: int

    @property
    def figures(self) -> list[str]:
        """Return the names of all rows."""
        return list(self.row.figures.values())

    def run(self, sides: Sides, rounds: int, names: set[str]) -> Iterator[Measured]:
        """Measure; ``names`` are all or some of the row's.

        Raises:
            UnequalError: a slave has another log, or other queues.
        """
        _ = names
        found, bare = Rounds(), []
        settings = self.settings | {"backend": self.backend}
        with stores(sides), sides.running(THEIRS, settings | {"role": "ASYNC_MASTER"}) as master:
            port = int(float(master.do("open")["port"]))
            master.do(f"put {self.messages}")
            totals = master.do("totals")
            end = int(float(totals["log_end"]))
            for _ in range(rounds):
                bare.append(end / copied(port, sides.store(THEIRS) / "copy", end) / 1e6)
                for name in SIDES:
                    slave = settings | {"dir": str(sides.slave(name)), "master": str(port)}
                    with sides.running(name, slave) as follower:
                        follower.do("open")
                        window = found.add(follower, f"followed {end}")
                        window["count"] = self.messages
                        refuse_unequal(name, totals, follower.do("totals"))
                    refuse_other_bytes(sides.store(THEIRS), sides.slave(name), end)
                    sides.clear(sides.slave(name))
        median, low, high = Spread.of(bare)
        for measured in self.row.measured(self.backend, found):
            measured.note = (
                f"bare copy, queues in {_QUEUES_IN[self.backend]}: {median:,.0f} MB/s"
                f" ({low:,.0f} to {high:,.0f})"
            )
            yield measured


def copied(port: int, path: Path, size: int) -> float:
    """Return the seconds from the first byte on that ``size`` bytes take into a file."""
    with socket.create_connection(("127.0.0.1", port)) as peer, path.open("wb") as file:
        peer.sendall(bytes(_REPORT_BYTES))
        left = size - file.write(peer.recv(_READ_BYTES))
        begin = time.perf_counter()
        while left > 0:
            data = peer.recv(_READ_BYTES)
            if not data:
                raise UnequalError(f"the master closed {left} bytes before the end of its log")
            left -= file.write(data)
        took = time.perf_counter() - begin
    path.unlink()
    return took


def refuse_unequal(name: str, master: Window, slave: Window) -> None:
    """Refuse a slave that has another end of the log, or another number of units."""
    for what in ("units", "log_end"):
        if master[what] != slave[what]:
            raise UnequalError(f"{what} of {name}'s slave is {slave[what]}, not {master[what]}")


def refuse_other_bytes(master: Path, slave: Path, end: int) -> None:
    """Refuse two logs that differ before ``end``."""
    files = sorted((master / "commitlog").iterdir())
    for path in files:
        left = end - int(path.name)
        with path.open("rb") as one, (slave / "commitlog" / path.name).open("rb") as other:
            while left > 0 and (data := one.read(min(left, _COMPARED_BYTES))):
                if other.read(len(data)) != data:
                    raise UnequalError(f"{slave}: other bytes than the master's in {path.name}")
                left -= len(data)
