"""``python -m tools.bench.latency``: how long single puts take, and how many a disk can promise.

*Paced*: a put is due every 100 µs (10,000 a second) and is counted from the moment it was due, so
that a stall counts for all who waited in it. The caller sleeps between puts: one that spins would
keep the interpreter from the flush thread. *Sync*: puts that return when the disk has them,
beside bare ``fdatasync`` after as many bytes.
"""

import os
import sys
import threading
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from tools.bench.workloads import folder

MIB = 1 << 20
BODY = bytes(128)


def paced(backend: str, seconds: float, rate: int = 10_000) -> dict[str, float]:
    """Put ``rate`` messages a second over 1,000 queues; return percentiles in microseconds."""
    config = StoreConfig(
        mapped_file_size_commit_log=64 * MIB, flush_consume_queue_thorough_interval=3_000
    )
    count, step = int(seconds * rate), 1 / rate
    calls, waits = np.zeros(count), np.zeros(count)
    with folder() as root, MessageStore.open(root, config, backend=backend) as store:
        messages = [Message(f"topic{at // 8}", BODY, at % 8, {"TAGS": "a"}) for at in range(1_000)]
        for message in messages:
            store.put_message(message)
        now = time.perf_counter
        first = now()
        for at in range(count):
            due = first + at * step
            while (began := now()) < due:
                time.sleep(due - began)
            store.put_message(messages[at % 1_000])
            done = now()
            calls[at], waits[at] = done - began, done - due
    found = {}
    for name, spent in (("call", calls), ("due", waits)):
        for label, value in zip(
            ("p50", "p99", "p99.9", "max"), np.percentile(spent, (50, 99, 99.9, 100)), strict=True
        ):
            found[f"{name} {label} us"] = float(value) * 1e6
    return found


def sync_puts(backend: str, writers: int, seconds: float) -> dict[str, float]:
    """Return durable puts a second by ``writers`` threads, and bare fdatasync calls a second."""
    config = StoreConfig(
        mapped_file_size_commit_log=64 * MIB, flush_disk_type=FlushDiskType.SYNC_FLUSH
    )
    counts = [0] * writers
    with folder() as root:
        with MessageStore.open(root, config, backend=backend) as store:
            end = time.perf_counter() + seconds

            def write(number: int) -> None:
                message = Message("t", BODY, number)
                while time.perf_counter() < end:
                    store.put_message(message)
                    counts[number] += 1

            threads = [threading.Thread(target=write, args=(at,)) for at in range(writers)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        raw = raw_syncs(str(root / "raw"), seconds / 2)
    return {"puts/s": sum(counts) / seconds, "raw fdatasync/s": raw}


def raw_syncs(path: str, seconds: float) -> float:
    """Write 250 bytes into reserved blocks and sync, again and again."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 64 * MIB)
    os.fsync(fd)
    count, end = 0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        os.pwrite(fd, bytes(250), count * 250)
        os.fdatasync(fd)
        count += 1
    os.close(fd)
    return count / seconds


def main() -> None:
    """Print one table."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("measure", "here")
    for backend in ("file", "rocksdb"):
        found = paced(backend, 15)
        table.add_row(f"paced {backend}", ", ".join(f"{k} {v:,.0f}" for k, v in found.items()))
    for writers in (1, 16):
        found = sync_puts("file", writers, 4)
        table.add_row(f"sync, {writers}", ", ".join(f"{k} {v:,.0f}" for k, v in found.items()))
    console.print(table)


if __name__ == "__main__":
    main()
