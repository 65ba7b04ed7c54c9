"""A program of RocketMQ's that goes on beside a test."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.peer.maven import JavaProgram

JVM = ["-Xmx1g", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dtls.server.mode=disabled"]
"""A program is over before the better compiler and collector, and a certificate that nobody asks
for, would have paid for themselves."""


@contextmanager
def started(command: Callable[[str], list[str]]) -> Iterator["subprocess.Popen[bytes]"]:
    """Start what ``command`` makes of a home of its own, with pipes; kill it at the end.

    The end of what it has said on standard error comes with an error.
    """
    with (
        tempfile.TemporaryDirectory() as home,
        (Path(home) / "err").open("w+b") as err,
        subprocess.Popen(
            command(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
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
