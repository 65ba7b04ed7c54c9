"""Damaged files of the file backend: queues, batch queues, extension files, what a stop knew.

Each input is a file of a store that is opened over it, read every way, cut and written to.
"""

import io
import os
import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from cqstore.cq_file.known_ends import ends_path, read_ends
from cqstore.cq_file.layout import BATCH_UNIT, FILE_UNIT
from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.errors import StoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.time_search import BoundaryType
from tests.kit.corpus import pieces
from tests.kit.file_queues import BATCH, FILE_SIZE, PRE_BLANK, SIZE, UNIT, Disk, NoLog, put, rows
from tests.kit.mutations import fuzz, mutated

LONG_MAX = (1 << 63) - 1
OFFSETS = (0, 1, 9, 10, 1 << 40, LONG_MAX)


def ask(store: ConsumeQueueStore, topic: str) -> None:
    """Read one queue every way there is."""
    for queue in (store.queue(topic, 0), store.queue(topic, 1)):
        low, high = queue.ends()
        for offset in (low, high - 1, *OFFSETS):
            with suppress(StoreError):  # batch queues have no blocks
                block = queue.read_units(offset, 64)
                list(block.units())
            for _, unit in zip(range(50), queue.iterate(offset), strict=False):
                queue.resolve_tags_code(unit.tags_code or 0)
            queue.unit_timestamp(offset)
        for boundary in BoundaryType:
            for stamp in (0, 20, LONG_MAX):
                found = queue.offset_by_time(stamp, boundary)
                assert found <= max(low, high)
        queue.estimate_message_count(low, high, lambda _: True)


def visit(store: FileConsumeQueueStore, log: NoLog) -> None:
    """Read, check, put, cut and clean."""
    with suppress(StoreError):
        ask(store, "T")
    with suppress(StoreError):
        list(store.check_files())
    if store.context.read_only:
        store.close()
        return
    for act in (
        lambda: put(store, store.queue("T", 0).max_offset(), rows(40, 15)),
        lambda: store.truncate_dirty(600),
        lambda: put(store, 3, rows(60, 3)),
        lambda: store.clean_expired(log.min_phy + 200),
        store.flush,
        store.close,
    ):
        with suppress(StoreError):
            act()


def over(disk: Disk) -> None:
    """Open what lies on ``disk`` after a crash, after a clean stop, read-only, and visit it."""
    for crashed, read_only in ((False, True), (True, False), (False, False)):
        with suppress(StoreError):
            visit(disk.open(crashed=crashed, read_only=read_only), disk.log)


def log() -> NoLog:
    return NoLog(min_phy=100, max_phy=5_000)


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.long)])
class TestDamaged:
    def test_queue_files(self, tmp_path: Path, golden_folder: Path, *, long: bool) -> None:
        full = b"".join(UNIT.pack(*row) for row in rows(0, 10))
        begun = b"".join(UNIT.pack(*row) for row in [PRE_BLANK] * 3 + rows(3, 4))
        seeds = [full + full.replace(b"\0\0\0\x32", b"\0\0\0\x33"), begun.ljust(FILE_SIZE, b"\0")]
        seeds += pieces(golden_folder, "*-default/consumequeue/*/0/*", 2 * FILE_SIZE)[:20]
        unit = [range(8), range(8, 12), range(12, 20)]
        fields = [range(r.start + at, r.stop + at) for at in (0, 20, 180, 200) for r in unit]
        disk = Disk(tmp_path, log())

        def run(data: bytes) -> None:
            disk.file(0).parent.mkdir(parents=True, exist_ok=True)
            disk.file(0).write_bytes(data[:FILE_SIZE].ljust(FILE_SIZE, b"\0"))
            disk.file(FILE_SIZE).unlink(missing_ok=True)
            if len(data) > FILE_SIZE:
                disk.file(FILE_SIZE).write_bytes(data[FILE_SIZE:][:FILE_SIZE])
                if len(data) % 3:
                    os.truncate(disk.file(FILE_SIZE), FILE_SIZE)
            over(disk)

        assert FILE_UNIT.size == UNIT.size
        fuzz("queue file", seeds, run, 350, long=long, fields=fields)

    def test_batch_queue_files(self, tmp_path: Path, golden_folder: Path, *, long: bool) -> None:
        made = [BATCH.pack(SIZE * n, SIZE, 7, 10 * n, 4 * n, 4, -1, 0) for n in range(10)]
        seeds = [b"".join(made)]
        seeds += pieces(golden_folder, "*/batchconsumequeue/*/*/*", 10 * BATCH.size)
        wide = [range(8), range(8, 12), range(20, 28), range(28, 36), range(36, 38)]
        fields = [range(r.start + at, r.stop + at) for at in (0, 46, 9 * 46) for r in wide]
        size = 10 * BATCH_UNIT.size
        disk = Disk(tmp_path, log(), settings={"mapper_file_size_batch_consume_queue": size})
        path = disk.folder(kind="batchconsumequeue") / f"{0:020d}"
        path.parent.mkdir(parents=True)

        def run(data: bytes) -> None:
            path.write_bytes(data[:size].ljust(size, b"\0"))
            over(disk)

        fuzz("batch queue file", seeds, run, 200, long=long, fields=fields)

    def test_extension_files(self, tmp_path: Path, golden_folder: Path, *, long: bool) -> None:
        seeds = pieces(golden_folder, "*/consumequeue_ext/*/*/*", 1024)
        settings = {"mapped_file_size_consume_queue_ext": 1024, "enable_consume_queue_ext": True}
        disk = Disk(tmp_path, log(), settings=settings)
        path = disk.folder(kind="consumequeue_ext") / f"{0:020d}"
        path.parent.mkdir(parents=True)

        def run(data: bytes) -> None:
            path.write_bytes(data[:1024].ljust(1024, b"\0"))
            with suppress(StoreError):
                store = disk.open(read_only=True)
                for at in (0, 1, 20, 40, 1000, 1023, 1024, len(data)):
                    store.queue("T", 0).resolve_tags_code(at - (1 << 63))
                list(store.check_files())
                store.close()

        fuzz("extension file", seeds, run, 200, long=long, fields=[range(2), range(18, 20)])

    def test_what_a_stop_knew_of_the_queues(self, tmp_path: Path, *, long: bool) -> None:
        seeds = [known(tmp_path / str(queues), queues) for queues in (1, 12)]
        disk = Disk(tmp_path / "1", log())
        path = ends_path(StorePaths(disk.root))

        def run(data: bytes) -> None:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(data)
            with suppress(StoreError):
                found = read_ends(StorePaths(disk.root))
                if found is not None:
                    list(found[1])
            over(disk)

        fuzz("known ends", seeds, run, 120, long=long)
        fuzz("columns", seeds, run, 80, long=long, mutate=one_column)


def known(root: Path, queues: int) -> bytes:
    """Return what a clean stop writes down of so many queues."""
    disk = Disk(root, log())
    disk.root.mkdir()
    disk.root.joinpath("lock").write_bytes(b"lock")
    store = disk.open()
    for queue_id in range(queues):
        put(store, 0, rows(queue_id, 12), queue_id=queue_id)
    store.close()
    return ends_path(StorePaths(root)).read_bytes()


def one_column(draw: random.Random, data: bytes, other: bytes, _: Sequence[range]) -> bytes:
    """Damage one column and let all checksums be right: the values lie, not the file."""
    with np.load(io.BytesIO(data)) as stored:
        columns = dict(stored)
    name = draw.choice([name for name in columns if name != "tie"])
    kind, shape = columns[name].dtype, columns[name].shape
    whole = mutated(draw, columns[name].tobytes(), other, [range(8), range(8, 16)])
    whole = whole[: len(whole) - len(whole) % kind.itemsize]
    column = np.frombuffer(whole, kind)
    columns[name] = column.reshape(shape) if column.size == np.prod(shape) else column
    file = io.BytesIO()
    np.savez(file, **columns)
    return file.getvalue()
