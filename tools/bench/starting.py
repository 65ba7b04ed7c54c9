"""What a start costs, in CPU time of a new process: the least of several, with bytecode cached.

Baselines: the libraries without which it could not be done, imported by a bare interpreter.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tools.bench.workloads import Reached, fill, folder

RUNS = 15
COMMAND = "import sys; from cqstore.cli import main; sys.argv[1:1] = {}; main()"
STORE = "import numpy; from pydantic import BaseModel"
CLI = "import importlib.metadata, typer, typer.rich_utils"


def start(code: str, bare: str) -> Reached:
    """Compare the start of a process that runs ``code`` with one that runs ``bare``."""
    with folder() as compiled:
        return Reached(_min_ms(code, compiled), _min_ms(bare, compiled), "ms of CPU")


def info(backend: str) -> Reached:
    """Time ``cqstore info`` on a store with 32 messages."""
    with folder() as root:
        fill(root, backend, 8, 32, 128)
        return start(COMMAND.format(["info", str(root)]), f"{STORE}; {CLI}")


def _min_ms(code: str, compiled: Path) -> float:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    env = known | {"PYTHONPYCACHEPREFIX": str(compiled)}
    words = [sys.executable, "-c", code]
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, check=True)  # compiles
    return 1000 * min(_cpu_seconds(words, env) for _ in range(RUNS))


def _cpu_seconds(words: list[str], env: dict[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


STARTING: dict[str, Callable[[], Reached]] = {
    "start: import cqstore": partial(start, "import cqstore", "import logging"),
    "start: import MessageStore": partial(start, "from cqstore import MessageStore", STORE),
    "start: cqstore --help": partial(start, COMMAND.format(["--help"]), CLI),
    "start: cqstore info --help": partial(
        start, COMMAND.format(["info", "--help"]), f"{STORE}; {CLI}"
    ),
    "start: cqstore info, files": partial(info, "file"),
    "start: cqstore info, RocksDB": partial(info, "rocksdb"),
}
