"""``tools.bench.arrivals [SECONDS]``: from the begin of a put to the reader that it wakes.

One message at a time: the next one is put when the reader has gone on, so nothing queues up. Beside
it bare wake-ups of the same kind, with no store between: a lock that another thread releases, and
``call_soon_threadsafe``. *Thread* is ``wait_for`` in a thread of its own, *task* is
``wait_for_async`` and *tail* an embedded log's, each in a loop that another thread puts to.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from cqstore.store.settings.config import StoreConfig
from tools.bench.workloads import folder

CONFIG = StoreConfig(mapped_file_size_commit_log=1 << 26)
BODY = bytes(128)
GAP_SECONDS = 0.0005
"""Between two messages: long enough for the reader to sleep again."""


class Turns:
    """Puts one message a turn, and notes when the reader has it."""

    def __init__(self, seconds: float) -> None:
        self.end = time.perf_counter() + seconds
        self.began = 0.0
        self.is_over = False
        self.found: list[float] = []
        self._went_on = threading.Semaphore(0)

    def woken(self) -> bool:
        """Note the reader's turn; return whether there is another."""
        now = time.perf_counter()
        self.found.append(now - self.began)
        self.is_over = now >= self.end
        self._went_on.release()
        return not self.is_over

    def run(self, put: Callable[[], object]) -> None:
        """Put until the time is over."""
        while not self.is_over:
            time.sleep(GAP_SECONDS)
            self.began = time.perf_counter()
            put()
            self._went_on.acquire()


def by_thread(log: EmbeddedLog, seconds: float) -> list[float]:
    """Wait in a thread."""
    store, turns = log.store, Turns(seconds)

    def read() -> None:
        offset = 0
        while store.wait_for("t", 0, offset) and turns.woken():
            offset += 1

    return _beside(read, turns, lambda: log.put("t", BODY, queue_id=0))


def by_task(log: EmbeddedLog, seconds: float) -> list[float]:
    """Wait in a task."""
    store, turns = log.store, Turns(seconds)

    async def read() -> None:
        offset = 0
        while await store.wait_for_async("t", 0, offset) and turns.woken():
            offset += 1

    return _beside(lambda: asyncio.run(read()), turns, lambda: log.put("t", BODY, queue_id=0))


def by_tail(log: EmbeddedLog, seconds: float) -> list[float]:
    """Wait in a tail, which reads the message and commits it."""
    turns = Turns(seconds)

    async def read() -> None:
        async with log.tail("t", group="g") as tail:
            async for _ in tail:
                if not turns.woken():
                    return

    return _beside(lambda: asyncio.run(read()), turns, lambda: log.put("t", BODY))


def bare_lock(seconds: float) -> list[float]:
    """Release a lock that a thread waits for."""
    turns, gate = Turns(seconds), threading.Lock()
    gate.acquire()

    def read() -> None:
        while gate.acquire() and turns.woken():
            pass

    return _beside(read, turns, gate.release)


def bare_call(seconds: float) -> list[float]:
    """Have a loop of another thread complete a future."""
    turns, box = Turns(seconds), list[asyncio.Future[None]]()
    loops: list[asyncio.AbstractEventLoop] = []

    async def read() -> None:
        loop = asyncio.get_running_loop()
        loops.append(loop)
        while True:
            future = loop.create_future()
            box.append(future)
            await future
            if not turns.woken():
                return

    def put() -> None:
        while not box:
            time.sleep(0)
        loops[0].call_soon_threadsafe(box.pop().set_result, None)

    return _beside(lambda: asyncio.run(read()), turns, put)


def _beside(read: Callable[[], object], turns: Turns, put: Callable[[], object]) -> list[float]:
    thread = threading.Thread(target=read)
    thread.start()
    turns.run(put)
    thread.join()
    return turns.found[len(turns.found) // 10 :]  # the first ones warm up


def with_log(
    backend: str, seconds: float, run: Callable[[EmbeddedLog, float], list[float]]
) -> list[float]:
    """Run over a new log."""
    with folder() as root, open_log(root, backend=backend, config=CONFIG) as log:
        log.create_topic("t", 4)
        return run(log, seconds)


def main(words: list[str]) -> None:
    """Print one table, in microseconds."""
    seconds = float(words[0]) if words else 10.0
    console = Console(width=None if sys.stdout.isatty() else 160)
    table = Table("from put to", "queues", "median us", "99 % us", "99.9 % us", "puts")
    rows = [("bare lock", "", bare_lock(seconds)), ("bare call", "", bare_call(seconds))]
    for backend in ("file", "rocksdb"):
        for name, run in (("thread", by_thread), ("task", by_task), ("tail", by_tail)):
            rows.append((name, backend, with_log(backend, seconds, run)))
    for name, queues, found in rows:
        middle, p99, rare = np.percentile(np.array(found) * 1e6, (50, 99, 99.9))
        table.add_row(
            name, queues, f"{middle:,.0f}", f"{p99:,.0f}", f"{rare:,.0f}", f"{len(found):,}"
        )
    console.print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
