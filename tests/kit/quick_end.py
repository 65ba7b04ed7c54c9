"""The end of a forked process, without taking the interpreter apart.

That writes to every object, and so copies all memory that the process has from the one that forked
it: more than most commands take. All else of a program's end is there: threads are waited for, exit
functions run, streams are flushed, and the libraries' own ends come last. How whole interpreters
end is tried with ``subprocess``.
"""

import atexit
import ctypes
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

_OF_MAIN = 120
"""What Python exits with where a stream cannot be flushed at the end."""


def end_behind(step: Callable[[], object]) -> NoReturn:
    """Run ``step`` as a program's code, and end this process; an exception goes through."""
    code: object = 0
    try:
        step()
    except SystemExit as exc:
        code = exc.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not (code is None or isinstance(code, int)):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001 - as it ends what Python ends
            code = _OF_MAIN
    ctypes.PyDLL(None).exit(code or 0)  # no other thread goes on in Python meanwhile
    raise AssertionError
