"""Queue files made by hand, and a file backend opened over them without a log beside it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from typing import Any

from cqstore.cq_file.store import FileConsumeQueueStore
from cqstore.store.paths import StorePaths
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueRestart
from cqstore.store.queue.units import UnitBatch
from cqstore.store.settings.config import StoreConfig
from tests.kit.descriptors import descriptors_of
from tests.kit.no_log import NoCheckpoint, NoLogFiles

UNIT = Struct(">qiq")  # phy offset, record size, tags code
BATCH = Struct(">qiqqqhii")
PRE_BLANK = (0, 0x7FFFFFFF, 0)
FILE_SIZE = 200  # ten units
ADDRESS = -(1 << 63)
"""Tags code that leads to the first extension unit."""
EXT_UNIT = bytes.fromhex("0018 0000000000000195 000001a1fb5715d9 0004 aabbccdd")
KINDS = ("consumequeue", "batchconsumequeue", "consumequeue_ext")
SIZE = 50  # of every record, so record i of a queue made by ``rows`` ends where i + 1 begins

Row = tuple[int, int, int]


@dataclass
class NoLog(NoLogFiles):
    """A log of which only the ends are known; a record was stored at its phy offset's tenth."""

    min_phy: int = 0
    max_phy: int = 1 << 40
    by_timestamp: int = 0

    def min_phy_offset(self) -> int:
        return self.min_phy

    def max_phy_offset(self) -> int:
        return self.max_phy

    def store_timestamp(self, phy_offset: int, size: int) -> int:
        return phy_offset // 10 if phy_offset + size <= self.max_phy else -1

    def file_offset_by_timestamp(self, timestamp: int) -> int:
        return self.by_timestamp if timestamp else 0


@dataclass
class Disk:
    """One store root, with verbs to fill and open it."""

    root: Path
    log: NoLog = field(default_factory=NoLog)
    checkpoint: NoCheckpoint = field(default_factory=NoCheckpoint)
    settings: dict[str, Any] = field(
        default_factory=lambda: {"mapped_file_size_consume_queue": FILE_SIZE}
    )

    def folder(self, topic: str = "T", queue_id: int = 0, kind: str = "consumequeue") -> Path:
        return self.root / kind / topic / str(queue_id)

    def file(self, start: int = 0, topic: str = "T", queue_id: int = 0) -> Path:
        return self.folder(topic, queue_id) / f"{start:020d}"

    def write(self, start: int, rows: Iterable[Row], topic: str = "T", queue_id: int = 0) -> Path:
        """Write one queue file with ``rows`` at its beginning, zeros behind them."""
        path = self.file(start, topic, queue_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(UNIT.pack(*row) for row in rows).ljust(FILE_SIZE, b"\0"))
        return path

    def fill(self, topic: str, *kinds: str) -> None:
        """Write files of one unit of each kind, a simple queue's with an extension address."""
        batch = BATCH.pack(50 * SIZE, SIZE, 9, 100, 0, 2, -1, 0)
        content = dict(zip(KINDS, (b"", batch + bytes(92), EXT_UNIT.ljust(64, b"\0")), strict=True))
        for kind in kinds or KINDS:
            folder = self.folder(topic, 0, kind)
            folder.mkdir(parents=True)
            (folder / f"{0:020d}").write_bytes(content[kind])
        if not kinds or "consumequeue" in kinds:
            self.write(0, [(3 * SIZE, SIZE, ADDRESS)], topic)

    def units(self, start: int = 0, topic: str = "T", queue_id: int = 0) -> list[Row]:
        """Return every row of one file as it is on disk."""
        return list(UNIT.iter_unpack(self.file(start, topic, queue_id).read_bytes()))

    def open(self, *, crashed: bool = False, read_only: bool = False) -> FileConsumeQueueStore:
        context = QueueStoreContext(
            StorePaths(self.root),
            StoreConfig(**self.settings),
            self.log,
            self.checkpoint,
            last_exit_ok=not crashed,
            read_only=read_only,
        )
        store = FileConsumeQueueStore(context).load()
        store.recover()
        return store

    def limited_to(self, queue_files_max: int) -> "Disk":
        return replace(self, settings=self.settings | {"queue_files_max": queue_files_max})


def rows(first: int, count: int, tags_code: int = 7) -> list[Row]:
    """Return the rows of records ``first`` and following, in a log that holds nothing else."""
    return [(SIZE * index, SIZE, tags_code) for index in range(first, first + count)]


def put(
    store: FileConsumeQueueStore,
    queue_offset: int,
    units: Iterable[Row],
    topic: str = "T",
    queue_id: int = 0,
) -> list[QueueRestart]:
    """Put one run of units."""
    batch = UnitBatch()
    for index, (phy_offset, size, tags_code) in enumerate(units):
        batch.add((topic, queue_id), queue_offset + index, phy_offset, size, tags_code, 0)
    return store.put_batch(batch)


def read_all(store: FileConsumeQueueStore, topic: str = "T", queue_id: int = 0) -> list[Row]:
    """Return every unit from the minimum on, read in blocks."""
    found: list[Row] = []
    queue = store.queue(topic, queue_id)
    offset = queue.min_offset()
    while True:
        block = queue.read_units(offset, 7)
        found += block.rows()
        offset += block.count
        if block.count < 7:
            return found


def open_below(root: Path) -> list[str]:
    """Return the files below ``root`` that this process holds open, "(deleted)" behind some."""
    return [str(path) for path in descriptors_of(root) if path != root]
