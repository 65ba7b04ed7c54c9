"""RocketMQ's consumers and mqadmin, in a Java program that answers line by line."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.interop.started import Row, started
from tests.kit.running import COMMAND
from tools.bench.peer.maven import JavaProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

NEWEST, OLD = "5.5.0", "4.9.8"
"""Releases of the clients; of 5.5.1 none are published."""


@dataclass(frozen=True)
class Consumers:
    """The clients of one release, built."""

    program: JavaProgram

    @classmethod
    def build(cls, version: str) -> "Consumers":
        """Compile the program, once.

        Raises:
            UnavailableError: it cannot be done here.
        """
        folder = Path(__file__).parent / "clients"
        return cls(JavaProgram.build(folder, "interop.Consumers", version))

    @contextmanager
    def running(self) -> "Iterator[RunningConsumers]":
        """Start the program; it ends with the block."""
        with started(self.program, []) as process:
            yield RunningConsumers(process)


class RunningConsumers:
    """The program that runs; one command at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        assert self._answer() == {"ready": True}

    def do(self, *words: object) -> Any:
        """Say a line, see ``Consumers.java``; return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        found = self._answer()
        if isinstance(found, dict) and "fault" in found:
            raise AssertionError(found["fault"])
        return found

    def admin(self, *words: object) -> str:
        """Return what mqadmin prints."""
        printed: str = self.do("admin", *words)["printed"]
        return printed

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the consumers have ended"
        return json.loads(line)


@contextmanager
def served(root: Path, *more: object) -> Iterator[int]:
    """Run ``cqstore serve`` on a free port; stop it at the end, and see that it ends well."""
    words: Sequence[str] = [
        *COMMAND[:1], "serve", str(root), "--listen", "127.0.0.1:0", "--output", "jsonl",
        *map(str, more),
    ]  # fmt: skip
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            found = None
            while found is None:
                line = process.stderr.readline()
                assert line, "cqstore serve has ended"
                found = re.search(r"127\.0\.0\.1:(\d+).*: serving", line)
            yield int(found[1])
            process.terminate()
            _, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert "Traceback" not in err
        except BaseException:
            process.kill()
            sys.stderr.write(process.stderr.read() if process.stderr else "")
            raise


def by_place(rows: list[Row]) -> dict[tuple[str, int, int], Row]:
    """Return messages by topic, queue and offset."""
    return {(each["topic"], each["queueId"], each["queueOffset"]): each for each in rows}
