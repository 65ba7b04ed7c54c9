"""Runs Apache RocketMQ's own store on a folder, through the Java program beside this file."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
Row = dict[str, Any]
_SOURCE = FOLDER / "src" / "main" / "java" / "interop" / "Interop.java"
_ENV = os.environ | {"LC_ALL": "C.UTF-8"}
_OPENED = ("java.nio", "sun.nio.ch", "jdk.internal.ref")


class UnavailableError(Exception):
    """Java or Maven is missing, or Maven's repository does not answer."""


@dataclass(frozen=True)
class RocketMQ:
    """One release of RocketMQ, built."""

    version: str

    @classmethod
    def build(cls, version: str) -> "RocketMQ":
        """Compile the program against ``version``, once."""
        built = FOLDER / "target" / version / "classes" / "interop" / "Interop.class"
        if not built.exists() or built.stat().st_mtime < _SOURCE.stat().st_mtime:
            goals = ["compile", "dependency:copy-dependencies"]
            command = ["mvn", "-q", "-B", f"-Drocketmq={version}", *goals]
            try:
                subprocess.run(command, cwd=FOLDER, check=True, capture_output=True, timeout=900)
            except (OSError, subprocess.SubprocessError) as exc:
                output = getattr(exc, "stdout", None) or b""
                raise UnavailableError(f"{exc}: {output[-500:].decode(errors='replace')}") from exc
        return cls(version)

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
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, env=_ENV
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
                capture_output=True, env=_ENV, timeout=240, check=False,
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
        target = FOLDER / "target" / self.version
        return [
            "java", "-Xmx1g", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
            "-Dfile.encoding=UTF-8", "-Dsun.jnu.encoding=UTF-8",
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            "-cp", f"{target}/classes:{target}/dependency/*", "interop.Interop",
            verb, str(root), kind, queues, *words,
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
