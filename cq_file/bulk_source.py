"""FileUnitSource: reads whole file queues by name, without listing folders."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cqstore.cq_file._queue_folders import topic_files
from cqstore.cq_file._short_queue import short_rows, unit_rows
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.descriptor_cache import DescriptorCache, descriptor_limit
from cqstore.cq_file.ext import ExtFiles
from cqstore.cq_file.file_sync import UnsyncedFiles
from cqstore.cq_file.layout import (
    FILE_UNIT,
    NO_UNIT,
    PRE_BLANK_UNIT,
    ext_folder,
    is_unit,
    parse_queue_id,
)
from cqstore.cq_file.listing import entries, sort_starts, topic_names
from cqstore.cq_file.queue_files import FileAccess
from cqstore.cq_file.recovery import read_rows, short_end
from cqstore.store.core._regular_files import regular_files
from cqstore.store.errors import CorruptionError, os_errors
from cqstore.store.files import file_name, open_regular
from cqstore.store.path_kind import is_dir
from cqstore.store.queue.bulk import (
    NO_TIMESTAMP,
    UNIT_ROWS,
    UnitRows,
    UnitRun,
    WholeQueue,
    key_order,
    row_table,
    topics_in_key_order,
)
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.units import EXT_ADDRESS_MAX, BlockStop, QueueKey

_UNIT = FILE_UNIT.size
_BEHIND_UNITS = 204
_LISTED_QUEUES = 4096
_LISTED_AT_ONCE = 256
_BLANK_SIZE = PRE_BLANK_UNIT.size


class _Listed(NamedTuple):
    """The files of a queue."""

    starts: list[int]
    facts: bytes = b""
    """Facts of the only file, see ``file_facts``; empty: there are several, or other entries."""


class FileUnitSource:
    """Reads whole queues of files, see ``UnitSource``."""

    has_timestamps = False

    def __init__(self, context: QueueStoreContext) -> None:
        config = context.config
        self._context = context
        self._folder = str(context.paths.consume_queue)
        self._per_file = config.units_per_file
        self._has_ext = is_dir(ext_folder(context.paths))
        self._unsynced = UnsyncedFiles()
        self._cache = DescriptorCache(descriptor_limit(config.queue_files_max), read_only=True)
        self._access = FileAccess(self._folder, self._per_file * _UNIT, self._cache, self._unsynced)
        ext_size = config.mapped_file_size_consume_queue_ext
        self._ext_access = FileAccess(
            str(ext_folder(context.paths)), ext_size, self._cache, self._unsynced
        )
        self._scratch = np.empty(0, np.uint8)
        self._opened: tuple[QueueKey, FileConsumeQueue, bytes | None] | None = None
        self._listed: dict[QueueKey, _Listed] = {}  # the queues that were listed last
        self._listed_before: dict[QueueKey, _Listed] = {}

    # ---- lists

    def queues(self, after: QueueKey | None, up_to: QueueKey | None) -> Iterator[QueueKey]:
        """Yield the queues that have a file. Only the names of the topics are kept in memory."""
        low = key_order(after) if after is not None else None
        high = key_order(up_to) if up_to is not None else None
        for topic in topics_in_key_order(topic_names(self._folder)):
            order = key_order(QueueKey(topic, 0))[:2]
            if (low and order < low[:2]) or (high and order > high[:2]):
                continue
            ids = [parse_queue_id(name) for name in topic_names(f"{self._folder}/{topic}")]
            known = sorted((i for i in ids if i is not None), key=lambda i: i & 0xFFFFFFFF)
            inside = known
            if order in {low and low[:2], high and high[:2]}:
                keys = ((key_order(QueueKey(topic, i)), i) for i in known)
                inside = [
                    i for key, i in keys if (not low or key > low) and (not high or key <= high)
                ]
            for at in range(0, len(inside), _LISTED_AT_ONCE):
                yield from self._list(topic, inside[at : at + _LISTED_AT_ONCE])

    def _list(self, topic: str, ids: list[int]) -> Iterator[QueueKey]:
        """Yield the queues of a topic that have a file."""
        path = f"{self._folder}/{topic}"
        for queue_id, found in zip(ids, topic_files(path, ids), strict=True):
            queue = QueueKey(topic, queue_id)
            if found is not None:
                self._remember(queue, _Listed([found[0]], found[1]))
                yield queue
            elif names := _files_of(f"{path}/{queue_id}"):
                self._remember(queue, _Listed(sort_starts(names)))
                yield queue

    def _remember(self, queue: QueueKey, listed: _Listed) -> None:
        """Keep the files of a queue that was listed, as it is usually read next."""
        if len(self._listed) >= _LISTED_QUEUES:
            self._listed_before, self._listed = self._listed, {}
        self._listed[queue] = listed

    def _listed_of(self, queue: QueueKey) -> _Listed | None:
        return self._listed.get(queue) or self._listed_before.get(queue)

    def whole(self, queue: QueueKey) -> WholeQueue | None:
        """Return the units of a short queue that was listed just before."""
        listed = self._listed_of(queue)
        if listed is None or not listed.facts or self._has_ext:
            return None
        [start] = listed.starts
        size = self._access.mapped_file_size
        if start % size:
            return None
        path = f"{self._path(queue)}/{file_name(start)}"
        rows = short_rows(path, size, self._context.log.max_phy_offset())
        return None if rows is None else WholeQueue(start // _UNIT, rows)

    def facts_of(self, queue: QueueKey) -> bytes | None:
        """Return the facts of the files of a queue when it was listed; ``None``: not kept."""
        listed = self._listed_of(queue)
        return (listed.facts or None) if listed is not None else None

    def next_offset(self, queue: QueueKey) -> int:
        """Return the end of the queue, found from its files."""
        return self._open(queue)[0].max_offset

    def _open(self, queue: QueueKey) -> tuple[FileConsumeQueue, bytes | None]:
        """Find the end of a queue; return its files, and its units if it is a short queue.

        The last one is cached, because it is needed several times.
        """
        if self._opened is not None and self._opened[0] == queue:
            return self._opened[1:]
        files, listed = FileConsumeQueue(self._access, *queue, []), self._listed_of(queue)
        files.starts = self._starts(files.folder) if listed is None else listed.starts
        context = self._context
        end = context.log.max_phy_offset()
        short = short_end(files, end)
        if short is not None:
            files.restore(*short.end[:4])
        else:
            files.recover(
                last_exit_ok=context.last_exit_ok,
                safe_phy_offset=end,
                max_phy_offset=end,
                read_only=True,
            )
        units = None if short is None else short.units
        self._opened = (queue, files, units)
        return files, units

    def _path(self, queue: QueueKey) -> str:
        return f"{self._folder}/{queue.topic}/{queue.queue_id}"

    @staticmethod
    def _starts(folder: str) -> list[int]:
        return sort_starts(entry.name for entry in entries(folder) if entry.is_file())

    # ---- units

    def fill(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Read file by file, by name, without listing folders."""
        done = self._fill_known(queue, queue_offset, rows)
        while done < len(rows):
            start = (queue_offset + done) // self._per_file * self._per_file
            count = min(len(rows) - done, start + self._per_file - queue_offset - done)
            found = self._read(queue, start, queue_offset + done, rows[done : done + count])
            done += found
            if found < count:
                break
        self._resolve(queue, queue_offset, rows[:done])
        return done

    def few_units(
        self, queue: QueueKey, begin: int, end: int, low_phy: int, high_phy: int
    ) -> tuple[bytes, int] | None:
        """Read the units from one file, by name."""
        start = begin // self._per_file * self._per_file
        if begin == end:
            return b"", 0
        if self._has_ext or end > start + self._per_file:
            return None
        path = f"{self._path(queue)}/{file_name(start * _UNIT)}"
        return unit_rows(path, (begin - start) * _UNIT, end - begin, low_phy, high_phy)

    def _fill_known(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> int:
        """Fill ``rows`` with units that were read to find the end; return their number."""
        if self._opened is None or self._opened[0] != queue:
            return 0
        _, files, units = self._opened
        position = (queue_offset - files.first_offset) * _UNIT
        if units is None or position < 0:
            return 0
        data = np.frombuffer(units, np.uint8)[position : position + len(rows) * _UNIT]
        return _take(data, rows)

    def _read(self, queue: QueueKey, start: int, queue_offset: int, rows: UnitRows) -> int:
        """Fill ``rows`` from the file that begins at ``start``; return the number of units."""
        path = f"{self._path(queue)}/{file_name(start * _UNIT)}"
        size = len(rows) * _UNIT
        if len(self._scratch) < size:
            self._scratch = np.empty(size, np.uint8)
        data = self._scratch[:size]
        try:
            descriptor = open_regular(path)
        except FileNotFoundError:
            return 0
        except OSError:
            with os_errors("open a queue file", path):
                raise
        try:
            got = os.preadv(descriptor, [data.data], (queue_offset - start) * _UNIT)
        except OSError:
            with os_errors("read a queue file", path):
                raise
        finally:
            os.close(descriptor)
        return _take(data[: got - got % _UNIT], rows)

    def _resolve(self, queue: QueueKey, queue_offset: int, rows: UnitRows) -> None:
        """Replace addresses of extension units in ``rows`` by their tags codes.

        Raises:
            CorruptionError: there is no extension unit at an address.
        """
        if not self._has_ext:
            return
        at = np.flatnonzero(rows["tags_code"] <= EXT_ADDRESS_MAX)
        if not len(at):
            return
        topic, queue_id = queue
        ext = ExtFiles(self._ext_access, topic, queue_id, [])
        ext.starts = self._starts(ext.folder)
        for row in at.tolist():
            address = int(rows["tags_code"][row])
            head = ext.resolve(address)
            if head is None:
                raise CorruptionError(
                    f"queue {queue_id} of topic {topic!r}: invalid extension address of unit"
                    f" {queue_offset + row}. Build the queues from the commit log instead",
                    path=Path(ext.folder), expected="the address of an extension unit", got=address,
                )  # fmt: skip
            rows["tags_code"][row] = head.tags_code

    def runs(self, queue: QueueKey, max_units: int) -> Iterator[UnitRun]:
        """Read block by block, stepping over holes."""
        files, short = self._open(queue)
        position = files.first_offset
        if short is not None and len(short) <= max_units * _UNIT:
            rows = np.empty(len(short) // _UNIT, UNIT_ROWS)
            _take(np.frombuffer(short, np.uint8), rows)
            self._resolve(queue, position, rows)
            yield UnitRun(position, rows)
            return
        while position < files.max_offset:
            block = files.read_block(position, max_units)
            if block.count:
                rows = np.empty(block.count, UNIT_ROWS)
                _take(np.frombuffer(block.data, np.uint8), rows)
                self._resolve(queue, position, rows)
                yield UnitRun(position, rows)
            position += block.count
            if block.stop is BlockStop.HOLE and block.hole is not None:
                position = block.hole.stop

    def behind(self, queue: QueueKey) -> UnitRun | None:
        """Read on after the end, as RocketMQ's recovery does, up to the first row without a record.

        Rows that point past the end of the log are dropped.
        """
        (files, short), limit = self._open(queue), self._context.log.max_phy_offset()
        if short is not None:
            return None
        found, offset = [np.empty(0, FILE_UNIT.dtype)], files.max_offset
        while len(read := read_rows(files, offset, _BEHIND_UNITS)):
            live = is_unit(read["phy_offset"], read["size"]) & (read["phy_offset"] < limit)
            count = len(read) if live.all() else int(np.argmin(live))
            found.append(read[:count])
            offset += count
            if count < len(read):
                break
        units = np.concatenate(found)
        if not len(units):
            return None
        rows = np.empty(len(units), UNIT_ROWS)
        for name in ("phy_offset", "size", "tags_code"):
            rows[name] = units[name]
        rows["store_timestamp"] = NO_TIMESTAMP
        return UnitRun(files.max_offset, rows)

    def is_open_ended(self, queue: QueueKey) -> bool:
        """Return whether there are bytes other than zeros after the end."""
        files, short = self._open(queue)
        return short is None and next(files.data_behind(files.max_offset * _UNIT), None) is not None

    def close(self) -> None:
        """Close the queue files that were opened."""
        self._cache.close()


def _files_of(folder: str) -> list[str]:
    listed = regular_files(folder)
    if listed is not None:
        return [each[0] for each in listed]
    return [entry.name for entry in entries(folder) if entry.is_file()]


def _take(data: np.ndarray[tuple[int], np.dtype[np.uint8]], rows: UnitRows) -> int:
    """Copy packed file units into ``rows`` up to the first invalid one; return their number."""
    count = len(data) // _UNIT
    row_table(rows)[:count, :_UNIT] = data.reshape(-1, _UNIT)
    rows["store_timestamp"][:count] = NO_TIMESTAMP
    if NO_UNIT in data.tobytes() or _BLANK_SIZE in rows["size"][:count]:
        units = data.view(FILE_UNIT.dtype)
        real = is_unit(units["phy_offset"], units["size"]) & (units["size"] != _BLANK_SIZE)
        bad = np.flatnonzero(~real)
        count = int(bad[0]) if len(bad) else count
    return count
