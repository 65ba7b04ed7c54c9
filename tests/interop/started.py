"""A program of RocketMQ's that runs to its end, or goes on beside a test."""

import json
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.bench.peer.maven import JavaProgram

JVM = ["-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dtls.server.mode=disabled"]
"""A program is over before the better compiler and collector, and a certificate that is not asked
for, would have paid for themselves."""
Row = dict[str, Any]
"""A line that a program has said."""


def joined(queues: Iterable[tuple[str, int]]) -> str:
    """Return topics and queue ids as one word of a command."""
    return ",".join(f"{topic}/{number}" for topic, number in queues)


def pairs(settings: dict[str, object]) -> list[str]:
    """Return settings as words of a command."""
    return [f"{key}={value}" for key, value in settings.items()]


def ran(program: JavaProgram, words: list[str]) -> list[Row]:
    """Run the program to its end; return what it said.

    Raises:
        AssertionError: it failed; with the end of what it has said on standard error.
    """
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [*program.command(home, JVM), *words],
            capture_output=True, env=JavaProgram.environment(), timeout=240, check=False,
        )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


@contextmanager
def started(program: JavaProgram, words: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the program with a home of its own, and with pipes; kill it at the end.

    The end of what it has said on standard error comes with an error.
    """
    with (
        tempfile.TemporaryDirectory() as home,
        (Path(home) / "err").open("w+b") as err,
        subprocess.Popen(
            [*program.command(home, JVM), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=err, env=JavaProgram.environment(),
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        except BaseException as exc:
            err.seek(0)
            exc.add_note(err.read().decode(errors="replace")[-4000:])
            raise
        finally:
            process.kill()
