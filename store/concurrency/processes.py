"""Running tasks in processes of this machine.

A task is a function of a module; it takes and returns a JSON text. A ``StoreError`` is a result: it
is raised again unchanged. A process that ends in another way is replaced, and its item is tried
again.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import cqstore
from cqstore.store.concurrency.task_worker import Task
from cqstore.store.errors import StoreConfigError, StoreError
from cqstore.store.progress import noop

TASK_ATTEMPTS = 4
"""Attempts per item, as on a Spark cluster."""
POLL_SECONDS = 0.25
IMPORT_ROOT = Path(str(cqstore.__file__)).resolve().parents[1]
"""The folder that holds the package ``cqstore``: a checkout, or site-packages."""
Outcome = tuple[str, str]
"""See ``cqstore.store.concurrency.task_worker.unwrap``."""


def worker_environment() -> dict[str, str]:
    """Return the environment of our Python processes: they import the same modules as this one.

    The current folder is never used, because a user's file there may have the name of one of our
    packages: neither as the first entry of the path, nor by name, as with ``python -m``. A checkout
    of this project is kept, whatever the current folder is.
    """
    here = Path.cwd()
    others = [path for path in map(Path, sys.path) if path.is_absolute() and path.resolve() != here]
    paths = map(str, [IMPORT_ROOT, *others] if here == IMPORT_ROOT else others)
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class _Workers:
    """Processes that run ``task``, started on demand and used by threads."""

    def __init__(self, task: Task) -> None:
        """Set the task; no process is started yet.

        Raises:
            StoreConfigError: ``task`` is in no module that a process could import.
        """
        if task.__module__ == "__main__":
            raise StoreConfigError(
                f"cannot run task {task.__qualname__} in other processes: it is defined in"
                " __main__, expected a module that can be imported"
            )
        self._command = [
            sys.executable, "-m", "cqstore.store.concurrency.task_worker",
            f"{task.__module__}:{task.__qualname__}",
        ]  # fmt: skip
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()
        self._started: list[subprocess.Popen[str]] = []
        self._lock = threading.Lock()  # guards _started and _stopped
        self._stopped = False

    def run(self, item: str) -> Outcome:
        """Run one item; a process that died is replaced, a few times.

        Raises:
            StoreError: the process died each time, or the tasks were cancelled.
        """
        for _ in range(TASK_ATTEMPTS):
            process = self._take()
            with suppress(OSError, ValueError):
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(item) + "\n")
                process.stdin.flush()
                kind, text = json.loads(process.stdout.readline())
                self._idle.put(process)
                return kind, text
            process.kill()
            process.wait()
        raise StoreError(
            f"a task failed: its process ended early in each of {TASK_ATTEMPTS} attempts. See its"
            " error output"
        )

    def _take(self) -> subprocess.Popen[str]:
        """Return an idle process, or a new one.

        Raises:
            StoreError: the tasks were cancelled.
        """
        with suppress(queue.Empty):
            return self._idle.get_nowait()
        with self._lock:
            if self._stopped:
                raise StoreError("the tasks were cancelled")
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=worker_environment(),
            )  # fmt: skip
            self._started.append(process)
        return process

    def stop(self) -> None:
        """End all processes."""
        with self._lock:
            self._stopped = True
            started = list(self._started)
        for process in started:
            process.kill()
        for process in started:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(OSError):
                        pipe.close()


def in_processes(
    task: Task, items: Sequence[str], tick: Callable[[int], object] = noop
) -> list[Outcome]:
    """Run ``task`` on each item, one process per core, and return the outcomes in their order.

    ``tick`` is called four times a second meanwhile, and at the end, with the number of finished
    items. An exception from it ends all processes.

    Raises:
        StoreConfigError: the task is in no module that could be imported.
        StoreError: all processes that tried an item died.
    """
    workers = _Workers(task)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        futures: list[Future[Outcome]] = [pool.submit(workers.run, item) for item in items]
        try:
            running = True
            while running:
                done, waiting = wait(futures, POLL_SECONDS)
                running = bool(waiting)
                tick(len(done))
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.stop()
    return [future.result() for future in futures]
