"""``python -m cqstore.ab.stores.killed_writer PARENT``: puts messages, then kills itself.

The store is given as JSON on standard input; see ``cqstore.ab.workloads.lifecycle``.
"""

import json
import os
import signal
import sys

from cqstore.ab.parent import die_with_parent
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.open_store import open_served
from cqstore.store.service.opening.options import OpenOptions, StoreHooks
from cqstore.store.settings.config import StoreConfig

TOPIC, QUEUES = "cqstore-ab-killed", 64
DURABLE, NOT_DURABLE = 1_000, 3_000
"""Number of messages before and after the flush."""
_LIST = 50


def main() -> None:
    """Put, flush, put again, and kill this process."""
    die_with_parent(int(sys.argv[1]))
    request = json.load(sys.stdin)
    options = OpenOptions(
        backend=request["backend"], housekeeping=False, hooks=StoreHooks(installed=False)
    )
    config = StoreConfig.from_mapping(request["config"])
    store = open_served(MessageStore, request["root"], config, options)
    body = bytes(max(request["body_bytes"], 1))
    for count in (DURABLE, NOT_DURABLE):
        for first in range(0, count, _LIST):
            store.put_messages([
                Message(TOPIC, body, at % QUEUES, {"TAGS": "a"}, born_timestamp=1)
                for at in range(first, first + _LIST)
            ])  # fmt: skip
        store.max_offset(TOPIC, 0)  # dispatches what waits
        if count == DURABLE:
            store.flush()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
