"""The power fails: what is left is what was synced and any part of the rest.

A run puts, flushes, deletes, expires, rolls and reopens on a disk that remembers what was synced.
From some instants of it the folder that a power cut leaves is built, opened and compared with what
was promised until then; on one of them the run goes on.
"""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_rocksdb.queues.rocksdb_store import RocksDBConsumeQueueStore
from cqstore.store.index.layout import INDEX_HEADER
from cqstore.store.log.checkpoint import CHECKPOINT, CheckpointFields
from cqstore.store.log.synced_mark import MARK_SLOT, MarkSlot
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of
from cqstore.store.settings.config import FlushDiskType, RocksDBEngine, StoreConfig
from tests.kit.engines import ENGINES
from tests.kit.power_cut import Disk, Image
from tests.kit.promised import Promises, Put, Queue, settle
from tests.kit.shim.clock import CLOCK
from tests.kit.two_paths import in_two_paths

LOG_FILE = 16384
CONFIG = StoreConfig(
    mapped_file_size_commit_log=LOG_FILE, mapped_file_size_consume_queue=20 * 40,
    max_index_num=60, max_hash_slot_num=20, rocksdb_memory_bytes=16 << 20, dispatch_slice=64,
    flush_interval_commit_log=1 << 30,
)  # fmt: skip
QUEUES: list[Queue] = [("a", 0), ("a", 1), ("b", 0), ("c", 3)]
places = st.tuples(st.integers(0, len(QUEUES) - 1), st.sampled_from([10, 300, 5000]))
put = st.tuples(st.just("put"), places)
steps = st.one_of(
    put,
    put,
    st.tuples(st.just("put_list"), st.lists(places, min_size=1, max_size=60)),
    st.tuples(st.just("put_list"), st.lists(places, min_size=1, max_size=60)),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("read"), st.none()),
    st.tuples(st.just("delete"), st.sampled_from(["a", "b", "c", "ca", "abc"])),
    st.tuples(st.just("expire"), st.floats(0, 1)),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("kill"), st.none()),
)
rounds = st.lists(st.lists(steps, min_size=1, max_size=12), min_size=1, max_size=3)


class Run:
    """One store that lives through several power cuts."""

    def __init__(
        self, folder: Path, config: StoreConfig, backend: str, seed: int, *, two_paths: bool = False
    ) -> None:
        self.folder = folder
        self.two_paths = two_paths
        self.config = config
        self.backend = backend
        self.draw = random.Random(seed)
        self.promises = Promises()
        self.numbers = count()
        self.folders = count()
        self.clock = 1_700_000_000_000_000_000
        self.root = folder / "new"
        self.root.mkdir()
        self.at_each: Callable[[Disk], None] | None = None
        self.store: MessageStore

    def live(self, operations: list[tuple[str, Any]]) -> None:
        """Open, do, and let the power fail."""
        self.disk = Disk(
            self.root, self.draw, self.promised, limit=3,
            database="consumequeue" if self.backend == "rocksdb" else None,
        )  # fmt: skip
        self.disk.at_each = self.at_each
        with ExitStack() as watched:
            watched.enter_context(self.disk.watching())
            clock = watched.enter_context(pytest.MonkeyPatch.context())
            clock.setattr(CLOCK, "stopped", self.clock)
            clock.setattr(CLOCK, "step", 1_000_000)
            # Images are copies, in which the mark would not be believed.
            watched.enter_context(
                mock.patch("cqstore.store.log.synced_mark._tie", return_value=(1, 1))
            )
            watched.enter_context(
                mock.patch.object(RocksDBConsumeQueueStore, "flush", self.flushing())
            )
            self.open()
            self.promises = settle(self.store, self.promises)
            for name, argument in operations:
                self.disk.look()
                getattr(self, name)(argument)
                self.disk.instant(f"after {name}")
            self.store.close()
            self.clock = CLOCK.stopped
        self.fail()

    def promised(self) -> Promises:
        return self.promises.copy()

    def fail(self) -> None:
        """Look at what is left at each instant that was kept; go on with the last one."""
        shutil.rmtree(self.root)
        for image in self.disk.images:
            self.root = self.folder / str(next(self.folders))
            image.build(self.root, self.draw)
            self.promises = image.promise
            if image is not self.disk.images[-1]:
                self.inspect(image)
                shutil.rmtree(self.root)

    def inspect(self, image: Image) -> None:
        """Open, compare, put one more into each queue, compare again after a clean stop."""
        try:
            self.open()
            self.promises = settle(self.store, self.promises)
            for index in range(len(QUEUES)):
                self.put((index, 10))
            self.promises.durable = len(self.promises.puts)
            self.reopen(None)
            settle(self.store, self.promises)
            self.store.close()
        except BaseException as exc:
            exc.add_note(f"power failed {image.where}")
            raise

    # ---- what a run may do

    def open(self) -> None:
        config = in_two_paths(self.root, self.config) if self.two_paths else self.config
        self.store = MessageStore.open(self.root, config, backend=self.backend)

    def put(self, place: tuple[int, int]) -> None:
        self.put_list([place], single=True)

    def put_list(self, wanted: list[tuple[int, int]], *, single: bool = False) -> None:
        promises, start = self.promises, len(self.promises.puts)
        puts = [Put(next(self.numbers), QUEUES[at], length) for at, length in wanted]
        following = {queue: promises.next_offset(queue) for queue in QUEUES}
        promises.puts += puts
        messages = [each.message() for each in puts]
        results = (
            [self.store.put_message(messages[0])] if single else self.store.put_messages(messages)
        )
        for place, (each, result) in enumerate(zip(puts, results, strict=True), start):
            assert result.ok
            assert result.queue_offset == following[each.queue]
            following[each.queue] += 1
            offset, phy_offset = result.queue_offset, result.phy_offset
            promises.puts[place] = Put(each.number, each.queue, each.length, offset, phy_offset)
        if self.config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            promises.durable = len(promises.puts)

    def flush(self, _: None) -> None:
        self.store.flush()
        self.promises.durable = len(self.promises.puts)

    def read(self, _: None) -> None:
        for queue in QUEUES:
            self.store.get_message(*queue, self.store.min_offset(*queue))

    def delete(self, topics: str) -> None:
        """Delete each topic that is a letter of ``topics``, all at once."""
        place = len(self.promises.puts)
        self.promises.deleting |= dict.fromkeys(topics, place)
        self.store.delete_topics([*topics])
        for topic in topics:
            del self.promises.deleting[topic]
            self.promises.began[topic] = place

    def expire(self, part: float) -> None:
        log = components_of(self.store).log
        low = max(log.min_phy_offset(), 0)
        to = low + int(part * (log.max_phy_offset() - low))
        self.promises.cleaning_to = max(to - to % LOG_FILE, low)
        report = self.store.delete_expired_files(to)
        self.promises.min_phy_offset = self.promises.cleaning_to = report.min_phy_offset

    def reopen(self, _: None) -> None:
        self.store.close()
        self.promises.durable = len(self.promises.puts)
        self.open()

    def kill(self, _: None) -> None:
        """Let the process die: what it wrote stays in the page cache, and the store is opened.

        A kill loses none of it. But what the process had not flushed is no more durable for that: a
        power cut in the middle of the opening may still take it.
        """
        store = self.store
        components_of(store).stop()
        queues = components_of(store).queues
        if isinstance(queues, RocksDBConsumeQueueStore):
            with self.disk.database_as_it_is():
                queues._open_engine().close(flush=False)
        lock = components_of(store).lock
        assert lock is not None
        lock.release()
        self.open()
        durable = self.promises.durable
        killed = self.promises.copy()
        killed.durable = len(killed.puts)
        self.promises = settle(self.store, killed)
        if self.config.flush_disk_type is FlushDiskType.ASYNC_FLUSH:
            self.promises.durable = durable  # until they are flushed again

    # ---- inside

    def flushing(self) -> Any:
        original = RocksDBConsumeQueueStore.flush

        def flush(store: RocksDBConsumeQueueStore) -> None:
            self.disk.instant("before RocksDB's flush")
            original(store)
            self.disk.database_flushed()
            self.disk.instant("after RocksDB's flush")

        return flush


def claims_only_what_is_durable(disk: Disk) -> None:
    """Compare each field of each checkpoint that the disk may have with what it surely has."""
    logs = disk.files("commitlog")
    marks_only_what_is_durable(disk)
    for fields in checkpoints(disk):
        for start, log in ((int(name), log) for name, log in logs.items()):
            vouched = max(fields.confirm_phy_offset - start, 0)
            if 0 < vouched < len(log.now):  # the record that starts there, too
                vouched += int.from_bytes(log.now[vouched : vouched + 4], "big")
            assert log.durable[:vouched] == log.now[:vouched], (start, fields)
            assert not vouched or disk.has_durable_name(log)
        for file in disk.files("index").values():
            header = INDEX_HEADER.unpack_from(file.now)
            is_full = header.index_count >= CONFIG.max_index_num
            if is_full and header.end_timestamp <= fields.index_msg_timestamp:
                assert file.durable == file.now
                assert disk.has_durable_name(file)
        if fields.logics_phy_offset:
            for file in disk.files("consumequeue").values():
                for at in range(0, len(file.now), FILE_UNIT.size):
                    unit = FILE_UNIT.unpack_from(file.now, at)
                    if unit.size and unit.phy_offset <= fields.logics_phy_offset:
                        row = slice(at, at + FILE_UNIT.size)
                        assert file.durable[row] == file.now[row], (unit, fields)
                        assert disk.has_durable_name(file)


def marks_only_what_is_durable(disk: Disk) -> None:
    for mark in marks(disk):
        for name, log in disk.files("commitlog").items():
            marked = max(mark.phy_offset - int(name), 0)
            assert log.durable[:marked] == log.now[:marked], (name, mark)
            assert not marked or disk.has_durable_name(log)


def marks(disk: Disk) -> Iterator[MarkSlot]:
    """Yield the slots that `cqstore/synced` may have."""
    node = disk.files("cqstore").get("synced")
    for content in (node.durable, *node.seen) if node is not None else ():
        for at in range(0, len(content), 512):
            yield MARK_SLOT.unpack_from(content, at)


def checkpoints(disk: Disk) -> Iterator[CheckpointFields]:
    for node in disk.named("checkpoint"):
        for content in (node.durable, *node.seen):
            if len(content) >= CHECKPOINT.size:
                yield CHECKPOINT.unpack_from(content)


def run(
    backend: str, engine: RocksDBEngine, flush: FlushDiskType, each: list[Any], seed: int,
    *, two_paths: bool = False,
) -> None:  # fmt: skip
    config = CONFIG.model_copy(update={"rocksdb_engine": engine, "flush_disk_type": flush})
    folder = Path(tempfile.mkdtemp(prefix="power-cut-"))
    try:
        store = Run(folder, config, backend, seed, two_paths=two_paths)
        for operations in each:
            store.live(operations)
        store.inspect(store.disk.images[-1])
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
@settings(max_examples=5, derandomize=True, deadline=None)
@given(each=st.lists(steps, min_size=4, max_size=20), seed=st.integers(0, 1 << 32))
def test_the_checkpoint_claims_only_what_is_durable(
    backend: str, each: list[Any], seed: int
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="power-cut-"))
    try:
        store = Run(folder, CONFIG, backend, seed)
        store.at_each = claims_only_what_is_durable
        store.live([*each, ("flush", None), ("put_list", [(0, 300)] * 50)])
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("flush", FlushDiskType)
@settings(max_examples=5, derandomize=True, deadline=None)
@given(each=rounds, seed=st.integers(0, 1 << 32))
def test_files_keep_what_was_promised(flush: FlushDiskType, each: list[Any], seed: int) -> None:
    run("file", RocksDBEngine.AUTO, flush, each, seed)


@pytest.mark.parametrize("backend", ["file", "rocksdb"])
@settings(max_examples=4, derandomize=True, deadline=None)
@given(each=rounds, seed=st.integers(0, 1 << 32))
def test_a_log_in_two_paths_keeps_what_was_promised(
    backend: str, each: list[Any], seed: int
) -> None:
    run(backend, RocksDBEngine.AUTO, FlushDiskType.ASYNC_FLUSH, each, seed, two_paths=True)


@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=3, derandomize=True, deadline=None)
@given(each=rounds, seed=st.integers(0, 1 << 32))
def test_rocksdb_keeps_what_was_promised(
    engine: RocksDBEngine, flush: FlushDiskType, each: list[Any], seed: int
) -> None:
    run("rocksdb", engine, flush, each, seed)


def keep_it_many_times(
    backend: str, engine: RocksDBEngine, flush: FlushDiskType, part: int, examples: int,
    *, two_paths: bool = False,
) -> None:  # fmt: skip
    """Try ``examples`` runs; each part has its own."""

    @hypothesis.seed(part)
    @settings(max_examples=examples, deadline=None)
    @given(each=rounds, seed=st.integers(0, 1 << 32))
    def keep(each: list[Any], seed: int) -> None:
        run(backend, engine, flush, each, seed, two_paths=two_paths)

    keep()


@pytest.mark.long
@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("part", range(10))
def test_files_keep_it_many_times(flush: FlushDiskType, part: int) -> None:
    keep_it_many_times("file", RocksDBEngine.AUTO, flush, part, 100)


@pytest.mark.long
@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("backend", ["file", "rocksdb"])
@pytest.mark.parametrize("part", range(3))
def test_a_log_in_two_paths_keeps_it_many_times(
    backend: str, flush: FlushDiskType, part: int
) -> None:
    keep_it_many_times(backend, RocksDBEngine.AUTO, flush, part, 50, two_paths=True)


@pytest.mark.long
@pytest.mark.parametrize("flush", FlushDiskType)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("part", range(3))
def test_rocksdb_keeps_it_many_times(
    engine: RocksDBEngine, flush: FlushDiskType, part: int
) -> None:
    keep_it_many_times("rocksdb", engine, flush, part, 50)
