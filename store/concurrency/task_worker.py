"""``python -m cqstore.store.concurrency.task_worker MODULE:FUNCTION``: a process for tasks.

An item comes as a line of JSON on standard input, its outcome goes as a line to standard output.
When the input ends, so does the process, in the middle of an item too: its driver has gone, and
another may be at work. Ctrl-C is the driver's to handle.
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

from cqstore.store.errors import DiskFullError, StoreError, is_full

Task = Callable[[str], str]
OK, ERROR = "ok", "error"


@contextmanager
def _full_disks() -> Iterator[None]:
    """Make an error of ours of a full disk, wherever it was met: no second try would pass."""
    try:
        yield
    except OSError as exc:
        if not is_full(exc):
            raise
        place = Path(os.fsdecode(exc.filename or tempfile.gettempdir()))
        raise DiskFullError(f"cannot run a task: {exc.strerror}", path=place) from exc


def guarded(task: Task, item: str) -> tuple[str, str]:
    """Return what ``task`` makes of ``item``, or the ``StoreError`` that it ended with, as text."""
    try:
        with _full_disks():
            return OK, task(item)
    except StoreError as exc:
        return ERROR, base64.b64encode(pickle.dumps(exc)).decode()


def unwrap(kind: str, text: str) -> str:
    """Return the result in an outcome.

    Raises:
        StoreError: that is the outcome.
    """
    if kind == ERROR:
        error: StoreError = pickle.loads(base64.b64decode(text))  # our own worker wrote it
        raise error
    return text


def main() -> None:
    """Run items until the driver closes the input, or has died."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    module, _, name = sys.argv[1].partition(":")
    task: Task = getattr(importlib.import_module(module), name)
    items: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(items,), daemon=True).start()
    with os.fdopen(os.dup(sys.stdout.fileno()), "w") as answers:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a task prints is no answer
        while True:
            answers.write(json.dumps(guarded(task, json.loads(items.get()))) + "\n")
            answers.flush()


def _listen(items: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        items.put(line)
    os._exit(0)


if __name__ == "__main__":
    main()
