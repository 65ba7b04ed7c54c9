"""Spark's daemon of Python workers, silent where Spark itself has ended a worker.

A task that needs no more rows, and the end of a session, close the pipe of a worker that is still
writing. Spark expects that and goes on, but the daemon prints the worker's traceback, which looks
like a failure. Whatever else a worker meets is printed as before, and reaches the caller.

Source: ``pyspark.daemon``, as which this module runs (``spark.python.daemon.module``).
"""

import sys
import traceback
from types import SimpleNamespace
from typing import TextIO

from pyspark import daemon

_CLOSED = (BrokenPipeError, ConnectionResetError)


def print_line(*words: object, file: TextIO | None = None) -> None:
    """Print as the daemon does, unless the pipe was closed."""
    if not _is_closed():
        print(*words, file=file or sys.stderr)


def print_exc() -> None:
    """Print the traceback of what is being handled, unless the pipe was closed."""
    if not _is_closed():
        traceback.print_exc()


def _is_closed() -> bool:
    return isinstance(sys.exception(), _CLOSED)


def quieten() -> None:
    """Put both in the place of what the daemon's module calls by these names."""
    names = vars(daemon)
    names["print"] = print_line
    names["traceback"] = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


if __name__ == "__main__":
    quieten()
    daemon.manager()
