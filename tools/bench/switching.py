"""``tools.bench.switching [QUEUES [SHARE]]``: the last step of a move, with many queue files.

A store of file queues with five units each is planned, moved and verified. SHARE of its queues (0:
none) are put to after that; then ``cqstore migrate switch`` goes to RocksDB alone. Each step is a
line: seconds, and seconds of processor time of this process and of those that it started. The
baseline of the switch is a bare look at each queue file. A million queues need 20 GB and half an
hour.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.migration.plan.planner import make_plan
from cqstore.migration.run.run import run_plan
from cqstore.migration.tasks import NO_SPARK
from cqstore.migration.verify import verify_migration
from cqstore.store.paths import StorePaths
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_store import make_store, topic_and_queue

UNITS_A_QUEUE = 5
FILE_BYTES = 2_000
"""Of a queue file: its length is no matter, a disk that a million of them fit on is."""
_COMMAND = "from cqstore.cli.app import main; main()"


def main(words: list[str]) -> None:
    """Measure once and print the table."""
    queues = int(words[0]) if words else 50_000
    share = float(words[1]) if len(words) > 1 else 0.0
    console = Console(width=None if sys.stdout.isatty() else 120)
    title = f"{queues:,} file queues, {share:.1%} of them put to since verify"
    table = Table("step", "seconds", "processor", title=title)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "store")
        config = make_store(
            root, queues * UNITS_A_QUEUE, queues, mapped_file_size_consume_queue=FILE_BYTES
        )
        StorePaths(root).lock.write_bytes(b"lock")  # what each opening writes

        def step(name: str, work: Callable[[], object]) -> None:
            console.print(f"… {name}", style="dim")
            began, used = time.monotonic(), _processor()
            work()
            seconds, processor = time.monotonic() - began, _processor() - used
            table.add_row(name, f"{seconds:,.1f}", f"{processor:,.1f}")

        step("plan", lambda: make_plan(root, config))
        step("run", lambda: run_plan(root, master=NO_SPARK))
        step("verify", lambda: verify_migration(root, master=NO_SPARK))
        if share:
            step("puts", lambda: _touch(root, config, queues, round(1 / share)))
        step("a bare look at each file", lambda: _check(root))
        settings = Path(folder, "broker.conf")
        settings.write_text(
            f"mappedFileSizeCommitLog={config.mapped_file_size_commit_log}\n"
            f"mappedFileSizeConsumeQueue={FILE_BYTES}\nmessageIndexEnable=false\n"
        )
        step("cqstore migrate switch", lambda: _command("switch", root, "--config", settings))
        console.print(table)


def _touch(root: Path, config: StoreConfig, queues: int, every: int) -> None:
    with MessageStore.open(root, config) as store:
        for number in range(0, queues, every):
            topic, queue_id = topic_and_queue(number)
            store.put_message(Message(topic, b"put since the queues were verified", queue_id))


def _command(*words: str | Path) -> None:
    subprocess.run([sys.executable, "-c", _COMMAND, "migrate", *words], check=True)


def _check(root: Path) -> None:
    for folder, _, names in os.walk(root / "consumequeue"):
        for name in names:
            Path(folder, name).stat()


def _processor() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main(sys.argv[1:])
