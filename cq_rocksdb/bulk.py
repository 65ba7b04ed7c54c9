"""RocksDBBulk: writes whole queues as table files and ingests them into a new database.

A sink's folder contains ``units.sst`` and ``offset.sst``, sorted by key. The units of sinks for
increasing ranges of queues do not overlap, so RocksDB ingests their files at the last level,
without a compaction.
"""

import errno
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from cqstore.cq_rocksdb.bulk_source import RocksDBUnitSource
from cqstore.cq_rocksdb.engine.choice import open_engine
from cqstore.cq_rocksdb.engine.errors import table_errors
from cqstore.cq_rocksdb.engine.private_folder import DATABASE_FILE
from cqstore.cq_rocksdb.engine.rocks_engine import EngineBatch, Family, RocksEngine, TableWriter
from cqstore.cq_rocksdb.folders import (
    NO_QUEUES,
    database_folder,
    database_folders,
    log_folder,
    separate_folder,
)
from cqstore.cq_rocksdb.keys import (
    CHECKPOINT_ENTRY,
    CHECKPOINT_KEY,
    MAX_TOPIC_BYTES,
    OFFSET_ENTRY,
    CheckpointEntry,
    OffsetEntry,
    check_topic,
    max_key,
    queue_prefix,
)
from cqstore.cq_rocksdb.queues.offset_table import NO_UNIT
from cqstore.store.broker_files.file_names import CURRENT
from cqstore.store.errors import (
    IllegalMessageError,
    RefusedStoreError,
    StoreConfigError,
    os_errors,
)
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.path_kind import exists, is_dir, is_file
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import (
    DiskUse,
    NameFault,
    QueueTotals,
    UnitRows,
    UnitSource,
    row_table,
)
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.message import CHECKPOINT_TOPIC
from cqstore.store.settings.config import StoreConfig

_UNITS, _OFFSET = "units.sst", "offset.sst"
_UNIT_BYTES = 40
"""Bytes per unit in an uncompressed table file: 28 for the value, plus key, filter and indexes."""
_ENTRY_BYTES = 36
"""Bytes per ``max`` or ``min`` entry without its topic's name: key 14, value 16, table overhead."""
_TABLE_BYTES = 256 << 20
_TOO_LONG = NameFault(
    "name-too-long",
    f"Topic names are longer than {MAX_TOPIC_BYTES} bytes of UTF-8, the limit of RocketMQ's RocksDB"
    " keys: a single longer name blocks RocketMQ's dispatch permanently.",
    by_length=True,
    limit=MAX_TOPIC_BYTES,
)
_RESERVED = NameFault(
    "name-reserved",
    f"A topic is named {CHECKPOINT_TOPIC}, which is reserved for RocksDB's checkpoint entry.",
)
_NO_TEXT = NameFault(
    "name-not-utf-8", "Topic names are not valid UTF-8, which RocksDB keys require."
)
_LIKE_A_FILE = NameFault(
    "name-of-database-file",
    "Topics have the names of RocksDB files, and consumequeue/ contains both the RocksDB files and "
    "the topic folders: set useSeparateStorePathForRocksdbCQ (RocketMQ 5.5.0).",
)
_NOT_PUBLISHED = {"LOCK", "LOG", "rocksdict-config.json"}


class RocksDBBulk:
    """The RocksDB side of a move, see ``BulkBackend``: queues are read, written, put in place."""

    name: ClassVar[str] = "rocksdb"
    keeps_timestamps: ClassVar[bool] = True
    needs_whole_queues: ClassVar[bool] = True

    def name_faults(self, topic: str, config: StoreConfig) -> Iterator[NameFault]:
        """Yield a fault if keys cannot contain the topic, or if it names a database file."""
        try:
            check_topic(topic)
        except IllegalMessageError:
            if topic == CHECKPOINT_TOPIC:
                yield _RESERVED
            elif len(topic.encode("utf-8", "surrogateescape")) > MAX_TOPIC_BYTES:
                yield _TOO_LONG
            else:
                yield _NO_TEXT
        beside = config.use_separate_store_path_for_rocksdb_cq
        if not beside and DATABASE_FILE.fullmatch(topic):
            yield _LIKE_A_FILE

    def footprint(self, totals: QueueTotals) -> DiskUse:
        """Return the estimated bytes of units and entries, and the number of table files."""
        entries = 2 * (totals.queues * _ENTRY_BYTES + totals.key_bytes)
        disk_bytes = totals.units * _UNIT_BYTES + entries
        tables = disk_bytes // _TABLE_BYTES + 1
        return DiskUse(disk_bytes, entries=tables, mapped_files=None, tables=tables)

    def source(self, context: QueueStoreContext) -> UnitSource:
        """Return the queues of a store's database as a source; it is opened read-only.

        Raises:
            RefusedStoreError: there is no database.
        """
        folder = database_folder(context.paths)
        if folder is None:
            raise RefusedStoreError(NO_QUEUES, path=context.paths.root)
        log = log_folder(context.paths)
        return RocksDBUnitSource(open_engine(folder, context.config, log, read_only=True)[0])

    def sink(self, folder: Path, config: StoreConfig) -> "RocksDBUnitSink":
        """Return a sink that writes queues as table files in ``folder``."""
        return RocksDBUnitSink(folder, config)

    def slice_units(self, config: StoreConfig) -> int:
        """Return 1: a table can begin with any unit."""
        _ = config
        return 1

    def check_queue(self, queue: QueueKey) -> None:
        """Refuse topics that keys cannot contain, and negative queue ids, which sort wrongly.

        Raises:
            IllegalMessageError: the name or id is refused.
        """
        check_topic(queue.topic)
        if queue.queue_id < 0:
            raise IllegalMessageError(
                f"invalid queue id {queue.queue_id} of topic {queue.topic!r}: RocksDB queues need"
                " an id of 0 or more"
            )

    def assemble(
        self, parts: Sequence[Path], paths: StorePaths, config: StoreConfig, phy_offset: int
    ) -> None:
        """Ingest links to the tables into a new database: units first, checkpoint entry last."""
        if exists(paths.root):
            with os_errors("remove an unfinished database", paths.root):
                shutil.rmtree(paths.root)
        waiting = paths.root / "ingest"
        with os_errors("create the folder of the new database", paths.root):
            waiting.mkdir(parents=True)
            paths.consume_queue.mkdir()
        tables = {_UNITS: _links(parts, _UNITS, waiting), _OFFSET: _links(parts, _OFFSET, waiting)}
        engine, _ = open_engine(paths.consume_queue, config, log_folder(paths), read_only=False)
        try:
            for family, name in ((Family.DEFAULT, _UNITS), (Family.OFFSET, _OFFSET)):
                if tables[name]:
                    engine.ingest(family, tables[name])
            checkpoint = CHECKPOINT_ENTRY.pack(CheckpointEntry(phy_offset))
            engine.write(EngineBatch(puts=[(CHECKPOINT_KEY, checkpoint)]))
        except BaseException:
            engine.close(flush=False)
            raise
        engine.close()
        with os_errors("sync the new database", paths.root):
            waiting.rmdir()
            sync_folder(paths.consume_queue)
            sync_folder(paths.root)

    def publish(self, made: StorePaths, paths: StorePaths, config: StoreConfig) -> None:
        """Rename the folder; in a shared folder, link the files one by one, ``CURRENT`` last."""
        separate = config.use_separate_store_path_for_rocksdb_cq
        source = made.consume_queue
        target = separate_folder(paths) if separate else paths.consume_queue
        if database_folder(paths) == target and not exists(source / CURRENT):
            return  # it was moved already
        with os_errors("publish the RocksDB queues", target):
            if separate and not exists(target):
                source.rename(target)
                sync_folder(target.parent)
                return
            make_folder(target)
            for file in sorted(source.iterdir()):
                if file.name != CURRENT and file.name not in _NOT_PUBLISHED:
                    _link(file, target / file.name)
            sync_folder(target)
            ready = target / f"{CURRENT}.dbtmp"
            _link(source / CURRENT, ready)
            ready.rename(target / CURRENT)
            sync_folder(target)

    def withdraw(self, paths: StorePaths, folder: Path, prefix: str = "") -> None:
        """Move the files to ``folder``, ``CURRENT`` first: without it there is no database.

        Raises:
            StoreConfigError: a ``prefix`` was given: one database has all topics.
        """
        if prefix:
            raise StoreConfigError("RocksDB queues cannot be moved away topic by topic")
        for held in database_folders(paths):
            files = [path for path in _files_of(held) if DATABASE_FILE.fullmatch(path.name)]
            if not files:
                continue
            files.sort(key=lambda path: path.name != CURRENT)
            with os_errors("move the RocksDB queues away", held):
                make_folder(folder / held.name)
                for file in files:
                    file.rename(folder / held.name / file.name)
                    if file.name == CURRENT:
                        sync_folder(held)
                sync_folder(held)
                sync_folder(folder / held.name)


class RocksDBUnitSink:
    """Writes whole queues into two table files, see ``UnitSink``.

    The options of the tables are those of an empty scratch database, which is removed at the end.
    """

    def __init__(self, folder: Path, config: StoreConfig) -> None:
        self._folder = folder
        self._scratch = folder / "scratch"
        self._engine: RocksEngine = open_engine(
            self._scratch, config, self._scratch / "log", read_only=False
        )[0]
        self._tables: dict[str, TableWriter] = {}
        self._last = (QueueKey("", 0), NO_UNIT.phy_offset)

    def add(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> None:
        """Append to the table of units."""
        if not len(rows):
            return
        with table_errors(self._folder):
            table = self._table(Family.DEFAULT, _UNITS)
            table.put_units(queue_prefix(*queue), queue_offset, row_table(rows))
        self._last = (queue, int(rows["phy_offset"][-1]))

    def end(self, queue: QueueKey, queue_offset: int) -> None:
        """Append the ``max`` entry: the last unit, or one that has expired."""
        last_queue, last_phy = self._last
        phy_offset = last_phy if last_queue == queue else NO_UNIT.phy_offset
        entry = OFFSET_ENTRY.pack(OffsetEntry(phy_offset, queue_offset - 1))
        with table_errors(self._folder):
            self._table(Family.OFFSET, _OFFSET).put(max_key(queue_prefix(*queue)), entry)

    def _table(self, family: Family, name: str) -> TableWriter:
        table = self._tables.get(name)
        if table is None:
            table = self._engine.table_writer(family, self._folder / name)
            self._tables[name] = table
        return table

    def finish(self) -> int:
        """Finish the tables, which syncs them, and sync their folder; return their bytes."""
        with table_errors(self._folder):
            size = sum(table.finish() for table in self._tables.values())
        self.abandon()
        with os_errors("sync the tables", self._folder):
            sync_folder(self._folder)
        return size

    def abandon(self) -> None:
        """Close the scratch database and remove it."""
        self._tables.clear()
        self._engine.close(flush=False)
        shutil.rmtree(self._scratch, ignore_errors=True)


def _files_of(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if is_file(path)] if is_dir(folder) else []


def _links(parts: Sequence[Path], name: str, folder: Path) -> list[Path]:
    """Link the tables ``name`` of all sinks into ``folder``; return the links."""
    links = []
    for number, part in enumerate(parts):
        if exists(part / name):
            link = folder / f"{number:06d}-{name}"
            with os_errors("link a table", part / name):
                os.link(part / name, link)
            links.append(link)
    return links


def _link(file: Path, target: Path) -> None:
    """Link ``file`` as ``target``, or copy it if the target is on another file system."""
    if exists(target):
        if target.samefile(file):
            return
        target.unlink()
    try:
        os.link(file, target)
    except OSError as exc:
        if exc.errno not in {errno.EXDEV, errno.EPERM, errno.EMLINK}:
            raise
        shutil.copy2(file, target)
        descriptor = os.open(target, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
