"""A program of RocketMQ's that runs to its end, or goes on beside a test."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tools.bench.peer.maven import JavaProgram

JVM = [
    "-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dtls.server.mode=disabled",
    "-Xlog:disable", "-Xlog:all=warning:stderr",
]  # fmt: skip
"""A program is over before the better compiler and collector, and a certificate that is not asked
for, would have paid for themselves. Standard output is for answers alone."""
_NUMBERS = count()
Row = dict[str, Any]
"""A line that a program has said."""


def joined(queues: Iterable[tuple[str, int]]) -> str:
    """Return topics and queue ids as one word of a command."""
    return ",".join(f"{topic}/{number}" for topic, number in queues)


def pairs(settings: dict[str, object]) -> list[str]:
    """Return settings as words of a command."""
    return [f"{key}={value}" for key, value in settings.items()]


@contextmanager
def class_archive(program: JavaProgram, *, makes: bool = True) -> Iterator[list[str]]:
    """Yield options of a JVM by which it maps the program's classes instead of loading them.

    The first process that ends by itself writes the archive, unless ``makes`` is false: give that
    for a process that is killed. Loading RocketMQ's classes is 40 % of a broker's start.
    """
    archive = program.target / f"{program.main}.jsa"
    if archive.exists() or not makes:
        yield [f"-XX:SharedArchiveFile={archive}"] if archive.exists() else []
        return
    made = archive.with_suffix(f".{os.getpid()}.{next(_NUMBERS)}.part")
    yield [f"-XX:ArchiveClassesAtExit={made}"]
    if made.exists():
        made.replace(archive)


def ran(program: JavaProgram, words: list[str]) -> list[Row]:
    """Run the program to its end; return what it said.

    Raises:
        AssertionError: it failed; with the end of what it has said on standard error.
    """
    with tempfile.TemporaryDirectory() as home, class_archive(program) as archived:
        done = subprocess.run(
            [*program.command(home, [*JVM, *archived]), *words],
            capture_output=True, env=JavaProgram.environment(), timeout=240, check=False,
        )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stderr.decode(errors="replace")[-4000:])
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


@contextmanager
def started(
    program: JavaProgram, words: list[str], *, ends: bool = False
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start the program with a home of its own, and with pipes; kill it at the end.

    ``ends`` states that the process exits within the block unless the block fails. An error has
    the end of what the process has said on standard error.
    """
    with (
        tempfile.TemporaryDirectory() as home,
        class_archive(program, makes=ends) as archived,
        (Path(home) / "err").open("w+b") as err,
        subprocess.Popen(
            [*program.command(home, [*JVM, *archived]), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
            env=JavaProgram.environment(),
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
