"""The two sides: a process each that does lines of work and answers with figures."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from tools.bench.peer.maven import JavaProgram

FOLDER = Path(__file__).parent
ROCKETMQ = "5.5.1"
OURS, THEIRS = "cqstore", "RocketMQ"
SIDES = (OURS, THEIRS)
"""In the order in which they take turns."""
_HEAP = ("-Xms2g", "-Xmx2g")
_ERROR_LINES = 3

Window = dict[str, float | str]
"""What one line of work took."""


class SideFailedError(Exception):
    """A side could not carry out a command."""


class SideProcess:
    """A running side."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: Path) -> None:
        self.name = name
        self._process = process
        self._errors = errors

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def do(self, line: str) -> Window:
        """Have one line of work done.

        Raises:
            SideFailedError: it was not; the sentence is the side's own.
        """
        lines, _ = _pipes(self._process)
        with suppress(BrokenPipeError):
            print(line, file=lines, flush=True)
        return self.answer(line)

    def answer(self, line: str) -> Window:
        """Return the next answer, to ``line``.

        Raises:
            SideFailedError: there is none, or it is a fault.
        """
        answer = _pipes(self._process)[1].readline()
        if not answer:
            raise SideFailedError(f"{self.name} ended at “{line}”: {self._last_errors()}")
        window: Window = json.loads(answer)
        if "failed" in window:
            raise SideFailedError(f"{self.name}, “{line}”: {window['failed']}")
        return window

    def end(self) -> None:
        """End the process without closing the store."""
        lines, answers = _pipes(self._process)
        lines.close()
        self._process.wait()
        answers.close()

    def _last_errors(self) -> str:
        lines = self._errors.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(lines[-_ERROR_LINES:]) or "it said nothing"


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    if process.stdin is None or process.stdout is None:
        raise TypeError("a side is started with pipes")
    return process.stdin, process.stdout


class Sides:
    """Starts processes of both sides; stores lie in folders of ``work``, one a side."""

    def __init__(self, work: Path) -> None:
        """Build RocketMQ's program if it is not there.

        Raises:
            UnavailableError: it cannot be built.
        """
        self._work = work
        self._aside = 0
        self._java = JavaProgram.build(FOLDER, "peer.Peer", ROCKETMQ)

    def store(self, side: str) -> Path:
        """Return the folder of a side's store."""
        return self._work / side

    def slave(self, side: str) -> Path:
        """Return the folder of the store of a side's slave."""
        return self._work / f"{side}-slave"

    def set_aside(self, path: Path) -> None:
        """Move a file or folder out of the way until the run is over.

        Deleting ten thousand queue files slows down the next files that are made: for minutes ext4
        skips recently used inodes, one by one.
        """
        if path.exists():
            self._aside += 1
            path.rename(self._work / f"aside-{self._aside}")

    def clear(self, root: Path, *, keep: str = "") -> None:
        """Leave nothing of a store but what is called ``keep``; of the rest the log is deleted."""
        if not root.is_dir():
            return
        for path in root.iterdir():
            if path.name == "commitlog" != keep:
                shutil.rmtree(path)
            elif path.name != keep:
                self.set_aside(path)
        if not keep:
            root.rmdir()

    @contextmanager
    def running(self, side: str, settings: dict[str, str]) -> Iterator[SideProcess]:
        """Start a side with its store; it is gone afterwards, the store not closed."""
        words = {"dir": str(self.store(side)), **settings}
        with self._home() as home, self._started(self._command(side, home), side, words) as found:
            yield found

    @contextmanager
    def java(self, main: str, side: str, settings: dict[str, str]) -> Iterator[SideProcess]:
        """Start another program of RocketMQ's."""
        words = {"dir": str(self.store(side)), **settings}
        with self._home() as home:
            command = replace(self._java, main=main).command(home, _HEAP)
            with self._started(command, side, words) as found:
                yield found

    def _home(self) -> "tempfile.TemporaryDirectory[str]":
        return tempfile.TemporaryDirectory(dir=self._work)

    @contextmanager
    def _started(
        self, command: list[str], side: str, words: dict[str, str]
    ) -> Iterator[SideProcess]:
        errors = self._work / f"{Path(words['dir']).name}.errors"
        with (
            errors.open("w", encoding="utf-8") as stderr,
            subprocess.Popen(
                [*command, *(f"{name}={value}" for name, value in words.items())],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True,
                encoding="utf-8", cwd=FOLDER.parents[2], env=self._java.environment(),
            ) as process,
        ):  # fmt: skip
            running = SideProcess(side, process, errors)
            try:
                yield running
            finally:
                running.end()

    def _command(self, side: str, home: str) -> list[str]:
        if side == OURS:
            return [sys.executable, "-m", "tools.bench.peer.worker"]
        return self._java.command(home, _HEAP)  # unpacks 25 MB of libraries there, and leaves them
