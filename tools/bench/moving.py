"""``tools.bench.moving [UNITS] [QUEUES …]``: how long a broker is down that is followed away.

The broker is a store with file queues that is opened, fed and put to, and closed; all as
``cqstore migrate follow`` meets it, but by this project's own master. *Down* is from its last sign
until its follower has all and may be started; the time that a start takes is not in it.
"""

import asyncio
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cqstore.migration.follow.move import FollowedMove, FollowedReport
from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tools.bench.sample_store import make_store, topic_and_queue

PUTS = 10_000
"""While it is followed, after its queues were compared."""


def main(words: list[str]) -> None:
    """Measure each number of queues, a line each."""
    units = int(words[0]) if words else 1_000_000
    table = Table("messages", "queues", "followed, s", "compared, s", "down, s", "drained, bytes")
    for queues in [int(word) for word in words[1:]] or [1_000, 100_000]:
        with tempfile.TemporaryDirectory() as folder:
            table.add_row(f"{units:,}", f"{queues:,}", *measured(Path(folder), units, queues))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@contextmanager
def _broker(root: Path, config: StoreConfig) -> Iterator[tuple[MessageStore, int]]:
    with MessageStore.open(root, config) as store, feeding(Feeder(store)) as feeder:
        yield store, feeder.port


def measured(folder: Path, units: int, queues: int) -> list[str]:
    """Move one store; return the figures of its line."""
    root = folder / "broker"
    config = make_store(root, units, queues, mapped_file_size_consume_queue=20_000)
    level, at = threading.Event(), {"begun": time.monotonic()}

    def note_stage(sentence: str) -> None:
        for name, words in (
            ("comparing", "comparing all queues"),
            ("level", "you can stop the broker"),
        ):
            if words in sentence:
                at[name] = time.monotonic()
        if "level" in at:
            level.set()

    with _broker(root, config) as (store, port):
        move = FollowedMove(root, ("127.0.0.1", port), folder / "own", config, on_event=note_stage)
        reports: list[FollowedReport] = []
        thread = threading.Thread(target=lambda: reports.append(asyncio.run(move.run())))
        thread.start()
        level.wait()
        for number in range(PUTS):
            topic, queue_id = topic_and_queue(number % queues)
            store.put_message(Message(topic, b"put while it is followed", queue_id))
    thread.join()
    report = reports[0]
    spans = at["comparing"] - at["begun"], at["level"] - at["comparing"], report.down_seconds
    return [*(f"{seconds:.1f}" for seconds in spans), f"{report.drained_bytes:,}"]


if __name__ == "__main__":
    main(sys.argv[1:])
