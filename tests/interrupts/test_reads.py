"""A reader is asked to stop at any instant: the puts behind it get the offsets that are theirs.

Each place where Python looks for signals in a read of queues that nothing is known of yet; caches
have room for a few queues, or grow while they are read. Then puts to the same queues, compared with
a model; the store closed, opened again, and all of it compared once more.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.settings.config import RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES
from tests.kit.interrupts import IGNORED, Interrupted, run_interrupted
from tests.kit.mutations import in_time
from tests.kit.share import SomePlaces

SECONDS = 120
QUEUES = 96
BLOCK = 4
"""Queues of a step: all are read, then put to."""
SHARE = 8
"""Places of a step and a backend that the normal run takes."""
MOST = 6000
"""Places that the long run takes of a read with more: a walk over all queues has forty thousand."""
TOPIC = "t"
SMALL = StoreConfig(
    mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=200, rocksdb_hot_queues=3,
    queue_files_max=16, max_hash_slot_num=20, max_index_num=400,
)  # fmt: skip
ROOMY = SMALL.model_copy(update={"rocksdb_hot_queues": 4 * QUEUES})
Read = Callable[[MessageStore, int], object]
READS: dict[str, Read] = {
    "pull": lambda store, queue: store.get_message(TOPIC, queue, 0),
    "max": lambda store, queue: store.max_offset(TOPIC, queue),
    "min": lambda store, queue: store.min_offset(TOPIC, queue),
    "time": lambda store, queue: store.offset_by_time(TOPIC, queue, 1),
    "spans": lambda store, queue: next(store.queue_spans(TOPIC, QueueKey(TOPIC, queue)), None),
    "query": lambda store, queue: store.query_message(TOPIC, f"k{queue}"),
}
VARIANTS = [
    ("file", "", "small"), ("both", "", "small"),
    *[("rocksdb", engine.value, size) for engine in ENGINES for size in ("small", "roomy")],
]  # fmt: skip


def pulled(store: MessageStore, queue: int) -> list[bytes]:
    """Return the bodies of a queue; a pull ends where a queue file does."""
    bodies: list[bytes] = []
    while found := store.get_message(TOPIC, queue, len(bodies)).messages():
        bodies += [message.body for message in found]
    return bodies


class Readers:
    """A store, and how many messages each of its queues was given."""

    def __init__(self, folder: Path, backend: str, engine: str, size: str) -> None:
        self.folder = folder
        config = {"small": SMALL, "roomy": ROOMY}[size]
        self.backend = None if backend == "both" else backend
        if self.backend is None:
            config = config.model_copy(update={"rocksdb_cq_double_write_enable": True})
        if engine:
            config = config.model_copy(update={"rocksdb_engine": RocksDBEngine(engine)})
        self.config = config
        self.ends = [0] * QUEUES
        with self.opened() as store:
            for queue in range(QUEUES):
                self.put(store, queue)
                if queue % 2:
                    self.put(store, queue)

    def opened(self) -> MessageStore:
        return MessageStore.open(self.folder, self.config, backend=self.backend, housekeeping=False)

    def put(self, store: MessageStore, queue: int) -> None:
        body = b"%d %d" % (queue, self.ends[queue])
        done = store.put_message(Message(TOPIC, body, queue, {"KEYS": f"k{queue}"}))
        assert (done.ok, done.queue_offset) == (True, self.ends[queue]), queue
        self.ends[queue] += 1

    def compare(self, store: MessageStore, queues: range) -> None:
        for queue in queues:
            assert store.max_offset(TOPIC, queue) == self.ends[queue], queue
            assert store.min_offset(TOPIC, queue) == 0
            assert pulled(store, queue) == [
                b"%d %d" % (queue, number) for number in range(self.ends[queue])
            ]

    def blocks(self, read: Read, numbers: Iterator[int]) -> bool:
        """Open the store, interrupt reads at ``numbers``, a block of queues each; more of them?"""
        with self.opened() as store:
            for first in range(0, QUEUES, BLOCK):
                number = next(numbers, None)
                if number is None:
                    break
                self.interrupted(store, read, range(first, first + BLOCK), number)
            else:
                first = QUEUES
        with self.opened() as store:
            self.compare(store, range(QUEUES))
            assert [finding for finding in store.check() if finding.damage] == []
        return first == QUEUES

    def interrupted(self, store: MessageStore, read: Read, queues: range, number: int) -> int:
        places = 0
        with suppress(Interrupted):
            places = run_interrupted(lambda: [read(store, queue) for queue in queues], number)
        for queue in queues:
            self.put(store, queue)
            read(store, queue)
            self.put(store, queue)
        self.compare(store, queues)
        return places

    def places(self, read: Read) -> int:
        """Return how many there are in the reads of queues that nothing is known of yet."""
        with self.opened() as store:
            first = self.interrupted(store, read, range(BLOCK), 0)
            return max(first, self.interrupted(store, read, range(BLOCK, 2 * BLOCK), 0))


@pytest.fixture(params=VARIANTS, ids="-".join)
def readers(request: pytest.FixtureRequest, tmp_path: Path) -> Readers:
    with in_time(SECONDS):
        return Readers(tmp_path / "store", *request.param)


def interrupt_all(readers: Readers, read: Read, numbers: Iterator[int]) -> None:
    goes_on = True
    while goes_on:
        with in_time(SECONDS):
            goes_on = readers.blocks(read, numbers)


@IGNORED
@pytest.mark.slow
@pytest.mark.parametrize("name", READS)
def test_an_interrupted_read_leaves_the_offsets_of_puts_right(
    readers: Readers, name: str, some_places: SomePlaces
) -> None:
    read = READS[name]
    places = readers.places(read)
    assert places > 3
    interrupt_all(readers, read, iter(some_places(places, SHARE, MOST)))
