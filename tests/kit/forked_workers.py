"""Workers of ``store.concurrency.processes`` that do not begin with 0.3 s of imports.

A process that has imported what tasks use forks them, one for each ``subprocess.Popen`` that is
asked for; each then runs ``python -m cqstore.store.concurrency.task_worker`` as if it had been
started. How they are really
started is tried in ``tests/migration/test_tasks.py``, and wherever a command runs in a process.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import cqstore.store.concurrency.processes
from cqstore.cq_rocksdb.engine.choice import engine_works
from cqstore.store.entry_points import entries
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.quick_end import end_behind

_ROOT = Path(__file__).parents[2]
_TASKS = (
    "cqstore.store.concurrency.task_worker", "cqstore.migration.run.segment",
    "cqstore.migration.verify.verification", "cqstore.migration.from_log.rebuild_plan",
    "cqstore.migration.from_log.scan_task", "cqstore.cq_file.bulk", "cqstore.cq_rocksdb.bulk",
    "cqstore.cq_rocksdb.engine.native_engine", "numpy.ma",
)  # fmt: skip
_MAX_BYTES = 1 << 20


class ForkedWorker:
    """What ``subprocess.Popen`` would be for one worker, as far as ``processes`` asks."""

    def __init__(self, forker: "_Forker", words: Sequence[str]) -> None:
        read, stdin = os.pipe()
        stdout, written = os.pipe()
        try:
            self._handle = forker.fork(words, read, written)
        finally:
            os.close(read)
            os.close(written)
        self._lock = threading.Lock()  # of it two threads may wait, as of a ``Popen``
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")

    def kill(self) -> None:
        """Kill it, if it still runs."""
        with self._lock, suppress(ProcessLookupError):
            if self._handle >= 0:
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def wait(self) -> None:
        """Wait until it has ended."""
        with self._lock:
            if self._handle >= 0:
                select.select([self._handle], [], [])
                os.close(self._handle)
                self._handle = -1


class _Forker:
    """The process that forks; one for each process of pytest, started when it is asked first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}  # no fork takes threads along
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.forked_workers", str(theirs.fileno())],
                cwd=_ROOT, env=environment, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        atexit.register(self._end)

    def fork(self, words: Sequence[str], stdin: int, stdout: int) -> int:
        """Return a descriptor of the new process."""
        request = json.dumps({"words": [*words], "cwd": str(Path.cwd())}).encode()
        with self._lock:
            socket.send_fds(self._socket, [request], [stdin, stdout])
            _, (handle,), _, _ = socket.recv_fds(self._socket, 1, 1)
        return handle

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()


_forkers: dict[int, _Forker] = {}
_starting = threading.Lock()


def _start(command: Sequence[str], **_: Any) -> ForkedWorker:
    assert command[:3] == [sys.executable, "-m", "cqstore.store.concurrency.task_worker"]
    with _starting:
        forker = _forkers.get(os.getpid()) or _forkers.setdefault(os.getpid(), _Forker())
    return ForkedWorker(forker, command[3:])


@contextmanager
def forked_workers() -> Iterator[None]:
    """Have all workers in the block forked."""
    with pytest.MonkeyPatch.context() as patch:
        popen = SimpleNamespace(Popen=_start, PIPE=subprocess.PIPE)
        patch.setattr(cqstore.store.concurrency.processes, "subprocess", popen)
        yield


def _serve(ours: socket.socket) -> None:
    for name in _TASKS:
        importlib.import_module(name)
    entries("")  # this and the next each child would do for itself: read what is installed,
    engine_works(RocksDBEngine.AUTO)  # make sense of the settings, and load RocksDB
    gc.collect()
    gc.freeze()
    while True:
        request, given, _, _ = socket.recv_fds(ours, _MAX_BYTES, 2)
        if not request:  # the process of the tests has ended
            return
        stdin, stdout = given
        with suppress(ChildProcessError):  # there are none
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        pid = os.fork()
        if not pid:
            ours.close()
            end_behind(partial(_be, json.loads(request), stdin, stdout))
        handle = os.pidfd_open(pid)  # its parent has not waited for it yet, so it is that one
        socket.send_fds(ours, [b"x"], [handle])
        for each in (stdin, stdout, handle):
            os.close(each)


def _be(request: dict[str, Any], stdin: int, stdout: int) -> None:
    for target, given in enumerate((stdin, stdout)):
        os.dup2(given, target)
        os.close(given)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    sys.argv = ["cqstore.store.concurrency.task_worker", *request["words"]]
    sys.modules.pop(
        "cqstore.store.concurrency.task_worker", None
    )  # ``python -m`` would have it anew
    runpy.run_module("cqstore.store.concurrency.task_worker", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
