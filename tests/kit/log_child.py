"""A process that puts and consumes until it is killed: ``python -m tests.kit.log_child DIR …``.

It says on its standard output, a JSON line each, what was stored and what each group was given.
"""

import asyncio
import json
import os
import random
import subprocess
import sys
from pathlib import Path

from cqstore.embedded.log import EmbeddedLog
from cqstore.embedded.open_log import open_log
from cqstore.store.settings.config import StoreConfig

TOPIC = "t"
GROUPS = ("one", "two")
QUEUES = 3
CONFIG = StoreConfig(
    mapped_file_size_commit_log=1 << 16, mapped_file_size_consume_queue=20 * 100,
    max_index_num=200, max_hash_slot_num=50, rocksdb_memory_bytes=16 << 20, dispatch_slice=64,
    flush_interval_commit_log=3, flush_consume_queue_thorough_interval=20,
)  # fmt: skip
COMMIT_SECONDS = 0.01


def opened(root: Path, backend: str, commit_seconds: float = COMMIT_SECONDS) -> EmbeddedLog:
    return open_log(
        root, backend=backend, config=CONFIG, queues=QUEUES, commit_seconds=commit_seconds
    )


def start(root: Path, backend: str, seed: int) -> "subprocess.Popen[bytes]":
    """Start the process; its messages are numbered from ``seed`` on."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kit.log_child", str(root), backend, str(seed)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )


def say(*words: object) -> None:
    os.write(sys.stdout.fileno(), json.dumps(words).encode() + b"\n")


async def produce(log: EmbeddedLog, number: int, draw: random.Random) -> None:
    while True:
        say("putting", number)
        log.put(TOPIC, b"%d" % number, key=f"k{number % 7}")
        say("put", number)
        number += 1
        # Now and then consumers catch up with it and wait: the next put finds them so.
        await asyncio.sleep(draw.choice([0, 0, 0.001]))


async def consume(log: EmbeddedLog, group: str) -> None:
    async with log.tail(TOPIC, group=group) as tail:
        async for message in tail:
            say("got", group, int(message.body))


async def work(log: EmbeddedLog, seed: int) -> None:
    draw = random.Random(seed)
    consumers = [consume(log, group) for group in GROUPS for _ in range(2)]
    await asyncio.gather(produce(log, seed, draw), *consumers)


def main(root: str, backend: str, seed: str) -> None:
    say("opening")
    with opened(Path(root), backend) as log:
        say("open")
        asyncio.run(work(log, int(seed)))


if __name__ == "__main__":
    main(*sys.argv[1:])
