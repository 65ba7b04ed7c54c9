"""A synchronous master that puts until it is killed: ``python -m tests.kit.fed_child``.

It says on its standard output where it feeds, and what a put has answered: phy offset and number.
"""

import os
import subprocess
import sys
import threading
from itertools import count
from pathlib import Path

from cqstore.replication.feed.feeder import Feeder
from cqstore.replication.feed.followers import Followers
from cqstore.replication.feed.in_thread import feeding
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageStatus
from cqstore.store.settings.config import FlushDiskType, StoreConfig
from cqstore.store.settings.replica_config import BrokerRole
from tests.kit.waiting import run_threads

CONFIG = StoreConfig(
    mapped_file_size_commit_log=16384, mapped_file_size_consume_queue=2000, max_hash_slot_num=50,
    max_index_num=200, slave_timeout=60_000, sync_flush_timeout=60_000,
    broker_role=BrokerRole.SYNC_MASTER,
)  # fmt: skip
_THREADS = 4


def start(root: Path, flush: FlushDiskType, first: int) -> "subprocess.Popen[bytes]":
    """Start the process; its messages are numbered from ``first`` on."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.kit.fed_child", root, flush.value, str(first)],
        stdout=subprocess.PIPE, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def say(*numbers: int) -> None:
    os.write(sys.stdout.fileno(), " ".join(map(str, numbers)).encode() + b"\n")


def work(store: MessageStore, numbers: "count[int]") -> None:
    while True:
        number = next(numbers)
        result = store.put_message(Message("t", b"%d" % number, number % 3))
        assert result.status is PutMessageStatus.PUT_OK
        say(result.phy_offset, number)


def main() -> None:
    root, flush, first = sys.argv[1:]
    config = CONFIG.model_copy(update={"flush_disk_type": FlushDiskType(flush)})
    followers, numbers = Followers(), count(int(first))
    store = MessageStore.open(root, config, replicas=followers, housekeeping=False)
    with feeding(Feeder(store, followers)) as feeder:
        say(feeder.port)
        threads = [threading.Thread(target=work, args=(store, numbers)) for _ in range(_THREADS)]
        run_threads(threads)


if __name__ == "__main__":
    main()
