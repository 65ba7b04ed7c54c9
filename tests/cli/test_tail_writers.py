"""``cqstore tail -f`` beside a process that writes as fast as it can: all, once, in order."""

import subprocess
import sys
from pathlib import Path

import pytest

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import StoreConfig
from tests.kit.commands import COMMAND

COUNT = 20_000
QUEUES = 4
WRITER = """
import sys, threading
from cqstore import FlushDiskType, Message, MessageStore, StoreConfig

root, backend, count, queues = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
config = StoreConfig(mapped_file_size_commit_log=1 << 16)

def put(queue_id):
    for number in range(count // queues):
        body = bytes([65 + number % 26]) * (number % 700)
        assert store.put_message(Message("t", b"%d-" % number + body, queue_id)).ok

with MessageStore.open(root, config, backend=backend) as store:
    threads = [threading.Thread(target=put, args=[each]) for each in range(queues)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.mark.long
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
def test_each_message_of_a_fast_writer_comes_once_and_in_order(
    tmp_path: Path, backend: str
) -> None:
    config = StoreConfig(mapped_file_size_commit_log=1 << 16)
    with MessageStore.open(tmp_path, config, backend=backend) as store:
        assert store.put_message(Message("t", b"first", 9)).ok
    words = ["tail", str(tmp_path), "t", "-f", "-n", "1", "--format", "%q %o %b"]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True) as tail:
        assert tail.stdout is not None
        try:
            assert tail.stdout.readline() == "9 0 first\n"
            writer = [sys.executable, "-c", WRITER, str(tmp_path), backend, str(COUNT), str(QUEUES)]
            with subprocess.Popen(writer, cwd=Path(__file__).parents[2]) as writing:
                following = [0] * QUEUES
                for _ in range(COUNT):
                    queue_id, offset, body = tail.stdout.readline().split(" ")
                    queue = int(queue_id)
                    assert int(offset) == following[queue]
                    assert body.partition("-")[0] == offset
                    following[queue] += 1
                assert writing.wait() == 0
            assert following == [COUNT // QUEUES] * QUEUES
        finally:
            tail.kill()
