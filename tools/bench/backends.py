"""``tools.bench.backends``: put, stop, reopen, read everything back, compare the backends.

100,000 messages over 1,000 queues, then over 100,000, through each backend; the table shows what it
took, and the exit code is 1 if a single message differs.
"""

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_messages import put_messages, read_back

MESSAGES = 100_000
TOPICS = (100, 10_000)
QUEUES_PER_TOPIC = 10
LIST = 32
BACKENDS = ("file", "rocksdb")
CONFIG = StoreConfig(mapped_file_size_commit_log=64 << 20)


@dataclass(frozen=True)
class BackendFigures:
    """What one backend took and what was read back from it."""

    backend: str
    queues: int
    put_seconds: float
    open_seconds: float
    read_seconds: float
    queue_bytes: int
    messages: int
    digest: str


def run(backend: str, topics: int, root: Path) -> BackendFigures:
    """Put everything, close, reopen, read everything back."""
    started = time.perf_counter()
    with MessageStore.open(root, CONFIG, backend=backend) as store:
        put_messages(store, MESSAGES, topics, QUEUES_PER_TOPIC, repeats=8, limit=LIST)
    put_seconds = time.perf_counter() - started
    started = time.perf_counter()
    store = MessageStore.open(root, CONFIG)
    open_seconds = time.perf_counter() - started
    started = time.perf_counter()
    digest, count = read_back(store)
    read_seconds = time.perf_counter() - started
    size = components_of(store).queues.total_size_bytes()
    store.close()
    queues = topics * QUEUES_PER_TOPIC
    return BackendFigures(
        backend, queues, put_seconds, open_seconds, read_seconds, size, count, digest
    )


def main() -> int:
    """Run both backends and compare them with each other and with what was put."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="cqstore-demo-") as folder:
        outcomes = [
            run(backend, topics, Path(folder) / f"{backend}-{topics}")
            for topics in TOPICS
            for backend in BACKENDS
        ]
    table = Table(title=f"{MESSAGES:,} messages, put in lists of {LIST}")
    labels = ("backend", "queues", "put/s", "reopen s", "read/s", "queues, MB", "read", "content")
    for column in labels:
        table.add_column(column, justify="left" if column == "backend" else "right")
    for outcome in outcomes:
        table.add_row(
            outcome.backend,
            f"{outcome.queues:,}",
            f"{MESSAGES / outcome.put_seconds:,.0f}",
            f"{outcome.open_seconds:.3f}",
            f"{outcome.messages / outcome.read_seconds:,.0f}",
            f"{outcome.queue_bytes / 1e6:.1f}",
            f"{outcome.messages:,}",
            outcome.digest[:12],
        )
    console.print(table)
    same = len({(outcome.queues, outcome.digest) for outcome in outcomes}) == len(TOPICS)
    whole = all(outcome.messages == MESSAGES for outcome in outcomes)
    console.print("equal" if same and whole else "DIFFERENT")
    return 0 if same and whole else 1


if __name__ == "__main__":
    sys.exit(main())
