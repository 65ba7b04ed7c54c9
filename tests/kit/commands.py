"""``cqstore`` in a process of its own that does not begin with half a second of imports.

``run`` asks a process that has imported what the verbs use. It forks for each command; the child
has the command's words, files and folder, runs ``main`` and ends by ``quick_end``. What a start
imports, signals, and what a terminal shows are tried with ``subprocess``. ``run_module`` is
the same for a program of the tests, ``python -m``.
"""

import atexit
import gc
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cqstore.cq_rocksdb.engine.choice import engine_works
from cqstore.store.entry_points import entries
from cqstore.store.settings.config import RocksDBEngine
from tests.kit.quick_end import end_behind
from tests.kit.verbs import never_reported

COMMAND = [str(Path(sys.executable).parent / "cqstore")]
_ROOT = Path(__file__).parents[2]
_IMPORTED = (
    "cqstore.cli.app", "cqstore.cli.commands.check", "cqstore.cli.commands.clean",
    "cqstore.cli.commands.dump", "cqstore.cli.commands.export", "cqstore.cli.commands.get",
    "cqstore.cli.commands.import_", "cqstore.cli.commands.tail", "cqstore.cli.commands.info",
    "cqstore.cli.commands.mode", "cqstore.cli.commands.offset", "cqstore.cli.commands.put",
    "cqstore.cli.commands.query", "cqstore.cli.commands.rebuild", "cqstore.cli.commands.recover",
    "cqstore.cli.commands.top", "cqstore.cli.commands.topics", "cqstore.cq_file.store",
    "cqstore.cq_file.bulk", "cqstore.cq_rocksdb.queues.rocksdb_store", "cqstore.cq_rocksdb.bulk",
    "cqstore.cq_rocksdb.commands", "cqstore.cq_rocksdb.engine.native_engine",
    "cqstore.cq_rocksdb.commands.stats", "cqstore.migration.commands",
    "cqstore.migration.commands.plan", "cqstore.migration.commands.run",
    "cqstore.migration.commands.verify", "cqstore.replication.commands",
    "cqstore.replication.commands.follow", "cqstore.replication.commands.ha_check",
    "cqstore.analysis.commands", "cqstore.ab.commands", "cqstore.broker.commands", "rich.console",
    "rich.table", "rich._emoji_codes", "typer.rich_utils", "typer._adapters",
    "pydantic.type_adapter", "numpy.ma", "jinja2", "encodings.cp437",
)  # fmt: skip


class _Server:
    """The process that forks; one for each process of pytest, started when it is asked first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # The library of numpy would start threads, which no fork takes along.
        environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.commands"], cwd=_ROOT, env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        atexit.register(self._end)

    def run(self, request: dict[str, Any]) -> int:
        """Return a command's exit code; below 0 the signal that ended it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return int(self._process.stdout.readline())

    def _end(self) -> None:
        with self._process:
            self._process.terminate()


_servers: dict[int, _Server] = {}


def run(
    words: Sequence[object], feed: str = "", cwd: Path | None = None, out: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run ``cqstore`` with ``words``, ``feed`` on standard input; return what it printed.

    ``out`` is a device that standard output goes to; then nothing of it is returned.
    """
    return _run(COMMAND, {"words": [*map(str, words)]}, feed, cwd or Path.cwd(), out)


def cqstore(*words: object, feed: str = "", code: int = 0) -> "subprocess.CompletedProcess[str]":
    """Run ``cqstore``, which must end with ``code`` and say no traceback; else as ``run``."""
    done = run(words, feed)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def run_module(name: str, *words: object) -> "subprocess.CompletedProcess[str]":
    """Run ``python -m`` with a module of this checkout and its words; return what it printed."""
    request = {"module": name, "words": [*map(str, words)]}
    return _run([sys.executable, "-m", name], request, "", _ROOT)


def _run(
    command: list[str], request: dict[str, Any], feed: str, cwd: Path, out: Path | None = None
) -> "subprocess.CompletedProcess[str]":
    texts = request["words"]
    if "COVERAGE_PROCESS_START" in os.environ:  # each process takes its test's name from there
        with nullcontext(subprocess.PIPE) if out is None else out.open("w") as place:
            return subprocess.run(
                [*command, *texts], input=feed, cwd=cwd, stdout=place, stderr=subprocess.PIPE,
                text=True, check=False,
            )  # fmt: skip
    server = _servers.get(os.getpid()) or _servers.setdefault(os.getpid(), _Server())
    with tempfile.TemporaryDirectory(prefix="cqstore-") as name:
        folder = Path(name)
        (folder / "0").write_text(feed, encoding="utf-8")
        if out is not None:
            (folder / "1").symlink_to(out)
        code = server.run(request | {"folder": name, "cwd": str(cwd)})
        said = (folder / "1").read_text(encoding="utf-8") if out is None else ""
        err = (folder / "2").read_text(encoding="utf-8")
    return subprocess.CompletedProcess(texts, code, said, err)


def _serve() -> None:
    for name in _IMPORTED:
        if name != "jinja2" or find_spec(name):  # an extra, which tests of packaging do without
            import_module(name)
    never_reported()
    entries("")  # this and the next each child would do for itself: read what is installed,
    engine_works(RocksDBEngine.AUTO)  # make sense of the settings, and load RocksDB
    gc.collect()
    gc.freeze()  # a child looks at what is here when it ends, and copies each page that it looks at
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            end_behind(partial(_be, json.loads(line)))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def _be(request: dict[str, Any]) -> None:
    from cqstore.cli.app import main  # noqa: PLC0415

    flags = os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT
    for target, flag in enumerate(flags):
        given = os.open(Path(request["folder"]) / str(target), flag, 0o600)
        os.dup2(given, target)
        os.close(given)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    sys.argv = [COMMAND[0], *request["words"]]
    if "module" in request:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
        return
    main()


if __name__ == "__main__":
    _serve()
