"""``python -m cqstore.store.concurrency.task_worker MODULE:FUNCTION``: a process for tasks.

It reads an item as a line of JSON from standard input, and writes its outcome as a line to standard
output. It ends when the input ends, even in the middle of an item: its driver has ended, and
another may be running. The driver handles Ctrl-C.
"""

import base64
import importlib
import json
import os
import pickle
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ParamSpec, TypeVar

from cqstore.store.errors import DiskFullError, StoreError, is_full

Task = Callable[[str], str]
P = ParamSpec("P")
T = TypeVar("T")
OK, ERROR = "ok", "error"


@contextmanager
def _full_disks() -> Iterator[None]:
    """Convert an error of a full disk, wherever it occurred: a second attempt would fail too."""
    try:
        yield
    except OSError as exc:
        if not is_full(exc):
            raise
        place = Path(os.fsdecode(exc.filename or tempfile.gettempdir()))
        raise DiskFullError(f"cannot run a task: {exc.strerror}", path=place) from exc


def guarded(task: Callable[P, T], *args: P.args, **arguments: P.kwargs) -> tuple[str, T | str]:
    """Return the outcome of ``task``: its result, or its ``StoreError`` as text."""
    try:
        with _full_disks():
            return OK, task(*args, **arguments)
    except StoreError as exc:
        return ERROR, base64.b64encode(pickle.dumps(exc)).decode()


def unwrap(kind: str, value: T) -> T:
    """Return the result in an outcome.

    Raises:
        StoreError: the outcome is this error.
    """
    if kind == ERROR:
        error: StoreError = pickle.loads(base64.b64decode(str(value)))  # written by our own worker
        raise error
    return value


def main() -> None:
    """Run items until the driver closes the input, or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, name = sys.argv[1].partition(":")
    task: Task = getattr(importlib.import_module(module), name)
    items: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(items,), daemon=True).start()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of a task is not an outcome
        while True:
            answers.write(json.dumps(guarded(task, json.loads(items.get()))) + "\n")
            answers.flush()


def _listen(items: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        items.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
