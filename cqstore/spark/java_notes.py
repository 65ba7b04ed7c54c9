"""Standard error of Spark's Java process and its Python workers, without expected messages.

Java reports at each start that it uses the vector module. A worker that plans a read is run by
pyspark's own daemon, regardless of ``spark.python.daemon.module``, and prints a traceback if Spark
has closed its pipe: see ``cqstore.spark.daemon``.
"""

import sys
import threading
from collections.abc import Iterable, Iterator
from typing import IO

_NO_NEWS = ("WARNING: Using incubator modules:",)
_TRACEBACK = "Traceback (most recent call last):"
_CLOSED = ("BrokenPipeError", "ConnectionResetError")


def news(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines without expected messages; an incomplete traceback is dropped.

    Exceptions of a task also reach the caller as exceptions.
    """
    held: list[str] = []
    for line in lines:
        if held:
            held.append(line)
            if line.startswith((" ", "\t")):
                continue
            if not line.startswith(_CLOSED):
                yield from held
            held = []
        elif line.startswith(_TRACEBACK):
            held = [line]
        elif not line.startswith(_NO_NEWS):
            yield line


def pass_on(stream: IO[bytes]) -> threading.Event:
    """Copy ``stream`` to standard error until it ends, in a thread.

    Returns an event: once it is set, lines are read and dropped.
    """
    silenced = threading.Event()
    threading.Thread(
        target=_copy, args=(stream, silenced), name="cqstore-java", daemon=True
    ).start()
    return silenced


def _copy(stream: IO[bytes], silenced: threading.Event) -> None:
    with stream:
        for line in news(raw.decode("utf-8", "replace") for raw in stream):
            if sys.stderr is not None and not silenced.is_set():
                sys.stderr.write(line)
