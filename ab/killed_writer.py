"""``python -m ab.killed_writer``: puts messages and kills itself, half of them not yet durable.

What it does comes as JSON on standard input; see ``ab.workloads.lives``.
"""

import json
import os
import signal
import sys
from pathlib import Path

from ab.parent import die_with_parent
from store.config import StoreConfig
from store.record.message import Message
from store.service.message_store import MessageStore

DURABLE, NOT_DURABLE = 1_000, 3_000
"""Messages that a flush covers, and those after it."""


def main() -> None:
    """Put, flush, put, and die."""
    die_with_parent(os.getppid())
    told = json.load(sys.stdin)
    store = MessageStore.open(
        Path(told["root"]), StoreConfig.from_mapping(told["config"]), backend=told["backend"],
        housekeeping=False,
    )  # fmt: skip
    keys, body = told["keys"], bytes(max(told["body_bytes"], 1))
    for count in (DURABLE, NOT_DURABLE):
        for first in range(0, count, 32):
            store.put_messages([
                Message(*_key(keys, at, body), properties={"TAGS": "a"}, born_timestamp=1)
                for at in range(first, min(first + 32, count))
            ])  # fmt: skip
        store.max_offset(*keys[0])  # hands on what waits
        if count == DURABLE:
            store.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def _key(keys: list[tuple[str, int]], at: int, body: bytes) -> tuple[str, bytes, int]:
    topic, queue_id = keys[at % len(keys)]
    return topic, body, queue_id


if __name__ == "__main__":
    main()
