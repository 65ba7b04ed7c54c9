"""Runs Apache RocketMQ's own store on a folder, through the Java program beside this file."""

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.interop.started import Row, joined, pairs, ran, started
from tools.bench.peer.maven import JavaProgram

if TYPE_CHECKING:
    import subprocess

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class RocketMQ:
    """One release of RocketMQ, built."""

    program: JavaProgram

    @classmethod
    def build(cls, version: str) -> "RocketMQ":
        """Compile the program against ``version``, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        return cls(JavaProgram.build(FOLDER, "interop.Interop", version))

    def dump(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], **settings: object
    ) -> list[Row]:
        """Open the store and return what RocketMQ reads of it; the store is then closed."""
        return self._run("dump", root, kind, joined(queues), [], settings)

    def read(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], **settings: object
    ) -> list[Row]:
        """Pull every message; return a digest of what came, a row a queue, in their order."""
        with tempfile.NamedTemporaryFile("w", suffix=".queues") as file:
            file.writelines(f"{topic}/{queue_id}\n" for topic, queue_id in queues)
            file.flush()
            return self._run("read", root, kind, f"@{file.name}", [], settings)

    def append(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], count: int, *, crash: bool,
        **settings: object,
    ) -> list[Row]:  # fmt: skip
        """Put ``count`` messages to each queue; return where they are."""
        return self._run(
            "append",
            root,
            kind,
            joined(queues),
            [str(count), "crash" if crash else "close"],
            settings,
        )

    def clean_unused(
        self, root: Path, kind: str, retained: Iterable[str], **settings: object
    ) -> int:
        """Delete the topics that are not ``retained``, by its own rule; return how many it says."""
        queues = joined((topic, 0) for topic in retained)
        (row,) = self._run("unused", root, kind, queues, [], settings)
        deleted: int = row["deleted"]
        return deleted

    @contextmanager
    def serving(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], **settings: object
    ) -> Iterator["Master"]:
        """Open the store as a master whose replication port is open; close it at the end."""
        with self._running("serve", root, kind, queues, settings) as process:
            master = Master(process)
            yield master
            master.close()

    @contextmanager
    def following(
        self, port: int, root: Path, kind: str, queues: Iterable[tuple[str, int]],
        **settings: object,
    ) -> Iterator["Slave"]:  # fmt: skip
        """Open the store as a slave of the master at ``port`` here; close it at the end."""
        role = {"brokerRole": "SLAVE", "haMasterAddress": f"127.0.0.1:{port}"}
        with self._running("slave", root, kind, queues, settings | role) as process:
            slave = Slave(process)
            yield slave
            slave.close()

    def _running(
        self,
        verb: str,
        root: Path,
        kind: str,
        queues: Iterable[tuple[str, int]],
        settings: dict[str, object],
    ) -> AbstractContextManager["subprocess.Popen[bytes]"]:
        return started(self.program, [verb, str(root), kind, joined(queues), *pairs(settings)])

    def _run(
        self,
        verb: str,
        root: Path,
        kind: str,
        queues: str,
        words: list[str],
        settings: dict[str, object],
    ) -> list[Row]:
        return ran(self.program, [verb, str(root), kind, queues, *words, *pairs(settings)])


class _Running:
    """A running store of RocketMQ's that answers a line with a line. Any thread, one at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.is_killed = False
        self.first = self._answer()

    def ask(self, words: object) -> Row:
        """Say ``words``; return the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{words}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        """Kill it as a power cut would, but for the disk."""
        self.is_killed = True
        self._process.kill()
        self._process.wait(60)

    def close(self) -> None:
        """Let it close its store."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(120) in {0, -9}

    def _answer(self) -> Row:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "RocketMQ has ended"
        answer: Row = json.loads(line)
        return answer


class Master(_Running):
    """Puts what it is told to."""

    @property
    def port(self) -> int:
        """Return where it serves slaves."""
        port: int = self.first["port"]
        return port

    def put(self, count: int) -> Row:
        """Put ``count`` messages to each queue; return how many came to which status, and the end
        of the log then."""
        return self.ask(count)

    def reign(self, epoch: int) -> Row:
        """Become master of a later epoch, as its controller would have it."""
        return self.ask(f"epoch {epoch}")


class Slave(_Running):
    """Follows a master."""

    def followed(self, phy_offset: int) -> int:
        """Wait until its log and its queues have come to ``phy_offset``; return its log's end."""
        end: int = self.ask(phy_offset)["end"]
        return end
