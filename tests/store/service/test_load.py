"""Eight writers and eight readers at once: no error, dense offsets, what is read was written."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.service.results import PutMessageResult
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES

THREADS = 8
MOST = 40_000
"""Messages that a writer puts at most: all are kept in memory, and compared twice."""
QUEUES = [(f"t{topic}", queue_id) for topic in range(4) for queue_id in range(4)]
STORES = [("file", RocksDBEngine.AUTO), *[("rocksdb", engine) for engine in ENGINES]]
Queue = tuple[str, int]


@dataclass
class Load:
    """One store under load; ``more`` tells a writer whether to go on after so many puts."""

    store: MessageStore
    more: Callable[[int], bool]
    written: dict[tuple[Queue, int], bytes] = field(default_factory=dict)
    """Bodies by queue and queue offset."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    done: threading.Event = field(default_factory=threading.Event)
    reads: int = 0

    def write(self, writer: int) -> None:
        draw, count = random.Random(writer), 0
        while self.more(count):
            queues = draw.choices(QUEUES, k=draw.choice([1, 1, 1, 20]))
            bodies = [draw.randbytes(draw.choice([10, 100, 1000])) for _ in queues]
            messages = [
                Message(topic, bytes([writer]) + body, queue_id, {"KEYS": f"{writer}-{count}"})
                for (topic, queue_id), body in zip(queues, bodies, strict=True)
            ]
            self.note(queues, messages, self.put(messages))
            count += len(messages)

    def put(self, messages: list[Message]) -> list[PutMessageResult]:
        if len(messages) > 1:
            return self.store.put_messages(messages)
        return [self.store.put_message(messages[0])]

    def note(
        self, queues: list[Queue], messages: list[Message], results: list[PutMessageResult]
    ) -> None:
        with self.lock:
            for queue, message, result in zip(queues, messages, results, strict=True):
                assert result.ok
                assert (queue, result.queue_offset) not in self.written
                self.written[queue, result.queue_offset] = message.body

    def read(self, reader: int) -> None:
        draw, store, reads = random.Random(-1 - reader), self.store, 0
        while not self.done.is_set():
            queue = draw.choice(QUEUES)
            high = store.max_offset(*queue)
            if not high:
                continue
            at = draw.choice([draw.randrange(high), max(high - 5, 0)])
            result = store.get_message(*queue, at)
            assert result.queue_offsets == list(range(at, at + len(result.queue_offsets)))
            assert result.queue_offsets, result.status
            for offset, message in zip(result.queue_offsets, result.messages(), strict=True):
                self.compare(queue, offset, message)
                reads += 1
        with self.lock:
            self.reads += reads

    def compare(self, queue: Queue, offset: int, message: StoredMessage) -> None:
        assert (message.topic, message.queue_id, message.queue_offset) == (*queue, offset)
        expected = self.written.get((queue, offset))  # the writer may not have noted it yet
        assert expected is None or message.body == expected

    def run(self) -> None:
        with ThreadPoolExecutor(2 * THREADS) as pool:
            readers = [pool.submit(self.read, number) for number in range(THREADS)]
            writers = [pool.submit(self.write, number) for number in range(THREADS)]
            try:
                for writer in writers:
                    writer.result()
            finally:
                self.done.set()
            for reader in readers:
                reader.result()

    def compare_all(self) -> None:
        compared = 0
        offsets: dict[Queue, list[int]] = {queue: [] for queue in QUEUES}
        for queue, offset in self.written:
            offsets[queue].append(offset)
        for queue, written in offsets.items():
            high = self.store.max_offset(*queue)
            assert sorted(written) == list(range(high))
            for start in range(0, high, 1000):
                rows = components_of(self.store).queues.queue(*queue).read_units(start, 1000).rows()
                for at, (phy_offset, *_) in enumerate(rows, start):
                    message = self.store.message_by_offset(phy_offset)
                    self.compare(queue, at, message)
                    compared += 1
        assert compared == len(self.written)
        assert [finding for finding in self.store.check() if finding.damage] == []


def load(
    root: Path,
    backend: str,
    engine: RocksDBEngine,
    flush: FlushDiskType,
    more: Callable[[int], bool],
) -> Load:
    """Load a store, compare all of it, and again after reopening."""
    config = StoreConfig(
        mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=20 * 1000,
        rocksdb_memory_bytes=16 << 20, rocksdb_engine=engine, flush_disk_type=flush,
        dispatch_slice=256, flush_interval_commit_log=5, flush_consume_queue_thorough_interval=50,
        max_index_num=20_000, max_hash_slot_num=5_000,
    )  # fmt: skip
    with MessageStore.open(root, config, backend=backend) as store:
        under = Load(store, more)
        under.run()
        under.compare_all()
    with MessageStore.open(root, config, backend=backend) as store:
        under.store = store
        under.compare_all()
    return under


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_little_load(
    tmp_path: Path, backend: str, engine: RocksDBEngine, flush: FlushDiskType
) -> None:
    most = 500 if flush is FlushDiskType.ASYNC_FLUSH else 150
    load(tmp_path, backend, engine, flush, lambda count: count < most)


@pytest.mark.long
@pytest.mark.parametrize(("backend", "engine"), STORES)
def test_a_minute_of_load(
    tmp_path: Path, backend: str, engine: RocksDBEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    end = time.monotonic() + 60
    flush = FlushDiskType.ASYNC_FLUSH
    under = load(
        tmp_path, backend, engine, flush, lambda count: count < MOST and time.monotonic() < end
    )
    with capsys.disabled():
        done = f"{len(under.written):,} puts, {under.reads:,} messages read"
        print(f"\n{backend} {engine.value}, 8 writers and 8 readers: {done}")  # noqa: T201
