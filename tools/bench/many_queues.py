"""``python -m tools.bench.many_queues [QUEUES [DIR]]``: a store with very many RocksDB queues.

Fills a store with one message of 128 bytes in each of QUEUES queues (10,000,000) of topics with
eight queues, commits an offset of one group in each, and runs the verbs of an operator on it, each
in a new process. A row shows the time, the CPU time of all threads, and the most memory that the
process had. DIR needs 500 bytes a queue, and twice that for the backup and the move.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console
from rich.table import Table

import cqstore
from cqstore import Message, MessageStore, StoreConfig
from cqstore.embedded.consumer_offsets import ConsumerOffsets
from tools.bench.workloads import folder

_TOPIC_QUEUES = 8
_STEPS = 10
_BODY = bytes(128)
QUEUES = "consumequeue"
"""Folder of the queues in RocksDB."""
FROM_LOG = "migrate plan --from log"
"""Row before which the copy loses its queues."""


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    seconds: float
    cpu_seconds: float
    memory_mib: float


def queue_of(number: int) -> tuple[str, int]:
    """Return topic and queue id; ten prefixes divide the topics."""
    topic, queue_id = divmod(number, _TOPIC_QUEUES)
    return f"p{topic % 10}_topic_{topic:07d}", queue_id


def fill(root: Path, queues: int) -> None:
    """Put one message to each queue, in turn; print the rate of each tenth, and the memory."""
    with MessageStore.open(root, StoreConfig(), backend="rocksdb") as store:
        for step in range(_STEPS):
            low, high = (queues * at // _STEPS for at in (step, step + 1))
            start, cpu = time.perf_counter(), time.process_time()
            for number in range(low, high):
                topic, queue_id = queue_of(number)
                done = store.put_message(Message(topic, _BODY, queue_id))
                assert done.ok, done.reason
            seconds, used = time.perf_counter() - start, time.process_time() - cpu
            count = high - low
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"{high:,} queues: {count / seconds:,.0f} puts/s,"
                f" {used / count * 1e6:.1f} µs CPU, at most {memory:,.0f} MiB",
                flush=True,
            )


def commit(root: Path, queues: int) -> None:
    """Commit an offset of one group in each queue; print the time of the commits and writes."""
    start, cpu = time.perf_counter(), time.process_time()
    with cqstore.open(root, backend="rocksdb") as log:
        offsets = log.offsets
        assert isinstance(offsets, ConsumerOffsets)
        for number in range(queues):
            offsets.commit("group", *queue_of(number), 1)
    seconds, used = time.perf_counter() - start, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"commits: {seconds:,.0f} s, {used / queues * 1e6:.1f} µs CPU each, {memory:,.0f} MiB")


def cost(words: list[str]) -> Cost:
    """Run a command of cqstore in a new process; its output is dropped."""
    start = time.perf_counter()
    code = "import sys; from cqstore.cli import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.DEVNULL
    ) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"cqstore {' '.join(words)}: exit code {process.returncode}")
    seconds = time.perf_counter() - start
    return Cost(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def verbs(root: Path, copy: Path) -> dict[str, list[str]]:
    """Return the commands, by the names of their rows; the last ones change the store."""
    name, rebuilt = str(root), str(copy)
    return {
        "info": ["info", name],
        "topics, the first 100": ["topics", name, "--limit", "100"],
        "topics, all as JSON lines": ["topics", name, "--output", "jsonl"],
        "usage by topic, 20 rows": ["usage", name, "--limit", "20"],
        "groups show": ["groups", "show", name],
        "backup": ["backup", name, rebuilt],
        "check of the backup": ["check", rebuilt],
        FROM_LOG: ["migrate", "plan", rebuilt, "--from", "log", "--to", "rocksdb"],
        "migrate run": ["migrate", "run", rebuilt, "--master", "none"],
        "migrate verify": ["migrate", "verify", rebuilt, "--master", "none"],
        "topics --delete --prefix of a tenth": [
            "topics", name, "--delete", "--prefix", "p7_", "--yes",
        ],
        "info after the deletion": ["info", name],
    }  # fmt: skip


def size(root: Path, name: str) -> int:
    """Return the bytes of the files below a folder of the store."""
    return sum(path.stat().st_size for path in (root / name).rglob("*") if path.is_file())


def main(words: list[str]) -> None:
    """Fill a store, run the verbs, and print a table."""
    queues = int(words[0]) if words else 10_000_000
    console = Console(width=None if sys.stdout.isatty() else 120)
    with folder() as made:
        base = Path(words[1]) if len(words) > 1 else made
        root = base / "store"
        for step in (fill, commit):  # a child's peak of memory would include that of this process
            child = get_context("spawn").Process(target=step, args=(root, queues))
            child.start()
            child.join()
            if child.exitcode:
                return
        console.print(f"queues: {size(root, QUEUES) / queues:.1f} bytes each")
        table = Table("verb", "seconds", "CPU seconds", "MiB", "µs a queue")
        for name, command in verbs(root, base / "copy").items():
            if name == FROM_LOG:
                shutil.rmtree(base / "copy" / QUEUES)
            found = cost(command)
            each = found.seconds / queues * 1e6
            row = (found.seconds, found.cpu_seconds, found.memory_mib, each)
            table.add_row(name, *(f"{value:,.1f}" for value in row))
            console.print(f"{name}: {found}")
        console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
