"""``python -m tools.bench.deletion [TOPICS …]``: many topics deleted at once, and a put beside it.

Each topic has a queue of three units. A thread puts into another topic every half millisecond
meanwhile; *longest put* is its longest call, *alone* the longest while nothing is deleted. The
baseline does the least that the medium asks for: ``rmtree`` of as many folders, or a bare
``delete_range`` for each topic and one flush. *pull* and *list* are of as many topics that stay.
"""

import gc
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family
from cqstore.cq_rocksdb.keys import topic_range
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tools.bench.workloads import folder

UNITS = 3
PUTS_APART = 0.0005
SAMPLE = 2_000
STORES = (
    ("file", RocksDBEngine.AUTO), ("rocksdb", RocksDBEngine.NATIVE),
    ("rocksdb", RocksDBEngine.ROCKSDICT),
)  # fmt: skip


class Beside:
    """A thread that puts into a topic of its own, and how long its longest call took."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._stop = threading.Event()
        self.longest = 0.0
        self.puts = 0

    @contextmanager
    def putting(self) -> Iterator["Beside"]:
        """Put while the block runs."""
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        message = Message("beside", bytes(128), 0, {"TAGS": "a"})
        while not self._stop.wait(PUTS_APART):
            started = time.perf_counter()
            self._store.put_message(message)
            self.longest = max(self.longest, time.perf_counter() - started)
            self.puts += 1


def topic(number: int) -> str:
    return f"topic_of_a_tenant_{number:07d}"


def fill(store: MessageStore, topics: int) -> None:
    for first in range(0, topics, 1000):
        some = [Message(topic(at), b"x" * 64) for at in range(first, min(first + 1000, topics))]
        for _ in range(UNITS):
            store.put_messages(some)
    store.flush()


def measure(backend: str, engine: RocksDBEngine, topics: int) -> dict[str, float]:
    """Delete every second one of twice as many topics; return seconds, and milliseconds of puts."""
    config = StoreConfig(mapped_file_size_commit_log=1 << 28, rocksdb_engine=engine)
    gone, left = (
        list(map(topic, range(0, 2 * topics, 2))),
        list(map(topic, range(1, 2 * topics, 2))),
    )
    with folder() as root:
        with MessageStore.open(root, config, backend=backend, housekeeping=False) as store:
            fill(store, 2 * topics)
            gc.collect()
            with Beside(store).putting() as alone:
                time.sleep(2)
            with Beside(store).putting() as beside:
                started = time.perf_counter()
                store.delete_topics(gone)
                seconds = time.perf_counter() - started
            if any(store.max_offset(name, 0) for name in gone[:: max(topics // 100, 1)]):
                raise RuntimeError("a topic is still there")
            found = {
                "seconds": seconds, "longest put ms": beside.longest * 1000,
                "alone ms": alone.longest * 1000, "puts beside": beside.puts,
                "pull us": pulls(store, left), "list s": listing(store, topics + 1),
            }  # fmt: skip
        started = time.perf_counter()
        with MessageStore.open(root, config, backend=backend, housekeeping=False) as store:
            found["open ms"] = (time.perf_counter() - started) * 1000
            found["raw seconds"] = raw(store, left)
    return found


def pulls(store: MessageStore, left: Sequence[str]) -> float:
    """Return microseconds of a pull from topics that stayed."""
    some = random.Random(1).choices(left, k=SAMPLE)
    started = time.perf_counter()
    for name in some:
        store.get_message(name, 0, 0)
    return (time.perf_counter() - started) / SAMPLE * 1e6


def listing(store: MessageStore, expected: int) -> float:
    """Return seconds to list every queue."""
    started = time.perf_counter()
    count = sum(1 for _ in store.queue_keys())
    if count != expected:
        raise RuntimeError(f"{count} queues, not {expected}")
    return time.perf_counter() - started


def raw(store: MessageStore, names: Sequence[str]) -> float:
    """Delete the topics that are left in the barest way; return seconds. Spoils the store."""
    queues = components_of(store).queues
    started = time.perf_counter()
    if isinstance(queues, RocksDBConsumeQueueStore):
        for name in names:
            spans: list[tuple[str, bytes, bytes]] = [(each, *topic_range(name)) for each in Family]
            queues.engine.write(EngineBatch(delete_ranges=spans))
        queues.engine.flush()
    else:
        for name in names:
            shutil.rmtree(Path(components_of(store).paths.consume_queue, name))
    return time.perf_counter() - started


def main(words: list[str]) -> None:
    """Print one table."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("topics", "store", "s", "baseline, s", "ratio", "longest put, ms", "more")
    for topics in map(int, words or ("1000", "100000")):
        for backend, engine in STORES:
            found = measure(backend, engine, topics)
            name = backend if backend == "file" else f"{backend}, {engine.value}"
            here, bare = found.pop("seconds"), found.pop("raw seconds")
            longest = f"{found.pop('longest put ms'):.1f} (alone {found.pop('alone ms'):.1f})"
            more = ", ".join(f"{label} {value:,.1f}" for label, value in found.items())
            table.add_row(
                f"{topics:,}",
                name,
                f"{here:.2f}",
                f"{bare:.2f}",
                f"{here / bare:.2f}",
                longest,
                more,
            )
            console.print(f"… {topics:,} {name}: {here:.2f} s", style="dim")
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
