"""Runs Apache RocketMQ's own store on a folder, through the Java program beside this file."""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peer.maven import JavaProgram

FOLDER = Path(__file__).parent
Row = dict[str, Any]


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
        return self._run("dump", root, kind, _words(queues), [], settings)

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
            _words(queues),
            [str(count), "crash" if crash else "close"],
            settings,
        )

    @contextmanager
    def serving(
        self, root: Path, kind: str, queues: Iterable[tuple[str, int]], **settings: object
    ) -> Iterator["Master"]:
        """Open the store as a master whose replication port is open; close it at the end."""
        with tempfile.TemporaryDirectory() as home:
            command = self._command(home, "serve", root, kind, _words(queues), [], settings)
            with (
                (Path(home) / "err").open("w+b") as err,
                subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=err,
                    env=JavaProgram.environment(),
                ) as process,
            ):
                try:
                    master = Master(process)
                    yield master
                    master.close()
                except BaseException as exc:
                    err.seek(0)
                    exc.add_note(err.read().decode(errors="replace")[-4000:])
                    raise
                finally:
                    process.kill()

    def _run(
        self,
        verb: str,
        root: Path,
        kind: str,
        queues: str,
        words: list[str],
        settings: dict[str, object],
    ) -> list[Row]:
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run(
                self._command(home, verb, root, kind, queues, words, settings),
                capture_output=True, env=JavaProgram.environment(), timeout=240, check=False,
            )  # fmt: skip
        if done.returncode:
            raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
        return [json.loads(line) for line in done.stdout.decode().splitlines()]

    def _command(
        self,
        home: str,
        verb: str,
        root: Path,
        kind: str,
        queues: str,
        words: list[str],
        settings: dict[str, object],
    ) -> list[str]:
        return [
            *self.program.command(home, ["-Xmx1g"]), verb, str(root), kind, queues, *words,
            *(f"{key}={value}" for key, value in settings.items()),
        ]  # fmt: skip


class Master:
    """A running store of RocketMQ's that puts what it is told to."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.port: int = self._answer()["port"]
        """Where it serves slaves."""

    def put(self, count: int) -> Row:
        """Put ``count`` messages to each queue; return how many came to which status, and the end
        of the log then. Any thread, one at a time."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{count}\n".encode())
        self._process.stdin.flush()
        return self._answer()

    def kill(self) -> None:
        """Kill it as a power cut would, but for the disk."""
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


def _words(queues: Iterable[tuple[str, int]]) -> str:
    return ",".join(f"{topic}/{number}" for topic, number in queues)
