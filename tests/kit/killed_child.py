"""A process that works on a store until it is killed: ``python -m tests.kit.killed_child``.

It says on its standard output, a JSON line each, what it is about to do and what has returned.
``followed`` reads that and keeps the promises up to date.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.promised import Promises, Put, Queue
from tests.kit.two_paths import in_two_paths

LOG_FILE = 65536
QUEUES: list[Queue] = [("a", 0), ("a", 1), ("b", 0), ("c", 3)]


def config_of(engine: RocksDBEngine) -> StoreConfig:
    """Flushes come every few ms, so that they are under way at most instants."""
    return StoreConfig(
        mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=20 * 100,
        max_index_num=200, max_hash_slot_num=50, rocksdb_memory_bytes=16 << 20,
        rocksdb_engine=engine, dispatch_slice=64, flush_interval_commit_log=3,
        flush_consume_queue_thorough_interval=20,
    )  # fmt: skip


def start(
    root: Path, backend: str, engine: RocksDBEngine, seed: int, *, deletes: bool = True,
    two_paths: bool = False,
) -> "subprocess.Popen[bytes]":  # fmt: skip
    """Start the process; its messages are numbered from ``seed`` on."""
    words = [str(root), backend, engine.value, str(seed), str(int(deletes)), str(int(two_paths))]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kit.killed_child", *words],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )


def followed(promises: Promises, line: bytes) -> None:
    """Take over one line; one that the kill cut off says nothing."""
    if not line.endswith(b"\n"):
        return
    kind, said = json.loads(line)
    puts = promises.puts
    if kind == "putting":
        puts += [Put(number, QUEUES[at], length) for number, at, length in said]
    elif kind == "put":
        first = len(puts) - len(said)
        for place, (offset, phy_offset) in enumerate(said, first):
            put = puts[place]
            puts[place] = Put(put.number, put.queue, put.length, offset, phy_offset)
        promises.durable = len(puts)
    elif kind == "deleting":
        promises.deleting[said] = len(puts)
    elif kind == "deleted":
        promises.began[said] = promises.deleting.pop(said)
    elif kind == "cleaning":
        promises.cleaning_to = max(said, promises.cleaning_to)
    elif kind == "cleaned":
        promises.min_phy_offset = promises.cleaning_to = said


def say(kind: str, said: Any) -> None:
    os.write(sys.stdout.fileno(), json.dumps([kind, said]).encode() + b"\n")


def work(store: MessageStore, draw: random.Random, number: int, *, deletes: bool) -> None:
    while True:
        match draw.randrange(20):
            case 0 if deletes:
                delete(store, draw.choice([["a"], ["b"], ["c"], ["c", "a"], ["a", "b", "c"]]))
            case 1 | 2:
                expire(store, draw.random())
            case 3:
                store.flush()
            case 4:
                for queue in QUEUES:
                    store.get_message(*queue, store.min_offset(*queue))
            case _:
                count = draw.choice([1, 1, 5, 50])
                put(store, [Put(number + at, draw.choice(QUEUES), draw.choice([10, 300, 3000]))
                            for at in range(count)])  # fmt: skip
                number += count


def put(store: MessageStore, puts: list[Put]) -> None:
    say("putting", [[each.number, QUEUES.index(each.queue), each.length] for each in puts])
    messages = [each.message() for each in puts]
    single = len(puts) == 1
    results = [store.put_message(messages[0])] if single else store.put_messages(messages)
    assert all(result.ok for result in results)
    say("put", [[result.queue_offset, result.phy_offset] for result in results])


def delete(store: MessageStore, topics: list[str]) -> None:
    for topic in topics:
        say("deleting", topic)
    store.delete_topics(topics)
    for topic in topics:
        say("deleted", topic)


def expire(store: MessageStore, part: float) -> None:
    low, high = max(store.min_phy_offset(), 0), store.max_phy_offset()
    to = low + int(part * (high - low))
    say("cleaning", to - to % LOG_FILE)
    say("cleaned", store.delete_expired_files(to).min_phy_offset)


def main() -> None:
    root, backend, engine, seed, deletes, two_paths = sys.argv[1:]
    config = config_of(RocksDBEngine(engine))
    say("opening", None)
    config = in_two_paths(Path(root), config) if two_paths == "1" else config
    store = MessageStore.open(root, config, backend=backend)
    say("open", None)
    work(store, random.Random(int(seed)), int(seed), deletes=deletes == "1")


if __name__ == "__main__":
    main()
