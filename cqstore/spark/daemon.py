"""Spark's daemon of Python workers, silent if Spark itself has ended a worker.

A task that needs no more rows, and the end of a session, close the pipe of a worker that is still
writing. Spark expects that and continues, but the daemon prints the worker's traceback, which looks
like a failure. All other errors of a worker are printed as before, and reach the caller.

Source: ``pyspark.daemon``, as which this module runs (``spark.python.daemon.module``).
"""

import sys
import traceback
from types import SimpleNamespace
from typing import TextIO

from pyspark import daemon

_CLOSED = (BrokenPipeError, ConnectionResetError)


def print_line(*words: object, file: TextIO | None = None) -> None:
    """Print like the daemon, unless the pipe was closed."""
    if not _is_closed():
        print(*words, file=file or sys.stderr)


def print_exc() -> None:
    """Print the current traceback, unless the pipe was closed."""
    if not _is_closed():
        traceback.print_exc()


def _is_closed() -> bool:
    return isinstance(sys.exception(), _CLOSED)


def quieten() -> None:
    """Replace ``print`` and ``traceback`` in the daemon's module."""
    names = vars(daemon)
    names["print"] = print_line
    names["traceback"] = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)


if __name__ == "__main__":
    quieten()
    daemon.manager()
