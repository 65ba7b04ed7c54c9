"""Checks the queue files without the commit log. Changes no byte.

Names and lengths are read from the folders now; ends and gaps are those that the recovery found.
The caller compares units with the records in the log.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cqstore.cq_file.batch_queue import BatchConsumeQueue
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.layout import (
    FILE_UNIT,
    PRE_BLANK,
    batch_folder,
    parse_file_name,
    parse_queue_id,
)
from cqstore.cq_file.listing import entries
from cqstore.cq_file.queue_files import QueueFiles
from cqstore.cq_file.recovery import NO_PHY, read_rows
from cqstore.store.errors import TruncatedRecordError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.facts import QueueFinding
from cqstore.store.queue.units import EXT_ADDRESS_MAX, QueueKey
from cqstore.store.service.offline.database_copy import is_database, is_database_file

if TYPE_CHECKING:
    from os import DirEntry

_UNIT = FILE_UNIT.size
_SCAN_UNITS = 8192
Resolve = Callable[[str, int, int], int | None]


def check_queue_files(
    paths: StorePaths,
    topics: Mapping[str, Mapping[int, FileConsumeQueue]],
    batch_topics: Mapping[str, Mapping[int, BatchConsumeQueue]],
    mapped_file_size: int,
    resolve: Resolve,
) -> Iterator[QueueFinding]:
    """Yield every finding, queue by queue.

    Raises:
        StoreIOError: a folder or file cannot be read.
    """
    yield from _check_names(paths.consume_queue, mapped_file_size)
    batch_size = next(
        (queue.access.mapped_file_size for ids in batch_topics.values() for queue in ids.values()),
        None,
    )
    yield from _check_names(batch_folder(paths), batch_size)
    for topic, ids in list(topics.items()):
        if topic in batch_topics:
            yield QueueFinding(
                "the topic has both simple and batch queues", str(paths.consume_queue / topic)
            )
        for queue_id, queue in list(ids.items()):
            yield from _check_readable(QueueKey(topic, queue_id), queue, resolve)
    for topic, batch_ids in list(batch_topics.items()):
        for queue_id, batch_queue in list(batch_ids.items()):
            yield from _check_gaps(QueueKey(topic, queue_id), batch_queue)


def _check_names(folder: Path, mapped_file_size: int | None) -> Iterator[QueueFinding]:
    """Find files and folders whose names do not belong to queues.

    RocksDB files without CURRENT remain after an interrupted rollback; a repeated rollback moves
    them away. A store with RocksDB queues that has lost its CURRENT is not opened.
    """
    with_rocksdb = is_database(folder)
    for topic_entry in entries(str(folder)):
        if not topic_entry.is_dir():
            if not with_rocksdb and not is_database_file(topic_entry.name):
                yield _foreign("a topic folder", topic_entry.path)
            continue
        for queue_entry in entries(topic_entry.path):
            queue_id = parse_queue_id(queue_entry.name)
            if queue_id is None or not queue_entry.is_dir():
                yield _foreign("a queue folder", queue_entry.path)
                continue
            key = QueueKey(topic_entry.name, queue_id)
            for file_entry in entries(queue_entry.path):
                if parse_file_name(file_entry.name) is None or not file_entry.is_file():
                    yield _foreign("a queue file", file_entry.path, key)
                elif (size := _size(file_entry)) not in {None, mapped_file_size}:
                    short = size is not None and size < (mapped_file_size or 0)
                    yield QueueFinding(
                        f"the queue file has {size} bytes instead of {mapped_file_size}",
                        file_entry.path, key, position=size if short else mapped_file_size,
                        expected=mapped_file_size, found=size,
                    )  # fmt: skip


def _foreign(what: str, path: str, key: QueueKey | None = None) -> QueueFinding:
    """Return the finding for a file or folder whose name does not belong to a queue."""
    return QueueFinding(f"not {what}: it is skipped", path, key, damage=False)


def _size(file: "DirEntry[str]") -> int | None:
    """Return the size of a file in bytes; ``None``: the writer has just removed it."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def _check_gaps(key: QueueKey, queue: QueueFiles) -> Iterator[QueueFinding]:
    """Yield the places where files of a queue are missing."""
    size = queue.access.mapped_file_size
    for before, behind in zip(queue.starts, queue.starts[1:], strict=False):
        if behind != before + size:
            yield QueueFinding(
                f"queue files are missing between the file at {before} and this file",
                queue.path(behind),
                key,
                behind // _UNIT if size % _UNIT == 0 else None,
            )


def _check_readable(
    key: QueueKey, queue: FileConsumeQueue, resolve: Resolve
) -> Iterator[QueueFinding]:
    """Yield the findings of a queue; files that the writer removes meanwhile are not damage."""
    generation = queue.generation
    try:
        yield from _check_queue(key, queue, resolve)
    except FileNotFoundError as exc:
        if generation == queue.generation:  # else the writer has just removed it
            yield QueueFinding("a queue file is missing", str(exc.filename), key)
    except TruncatedRecordError as exc:
        yield QueueFinding(
            exc.reason, str(exc.path), key, position=exc.position, expected=exc.expected,
            found=exc.got,
        )  # fmt: skip


def _check_queue(
    key: QueueKey, queue: FileConsumeQueue, resolve: Resolve
) -> Iterator[QueueFinding]:
    """Yield the findings of a queue: gaps, data after its end, extension addresses."""
    yield from _check_gaps(key, queue)
    end = queue.max_offset
    # Only pre-blanks: all units of the queue have expired, and it continues at its end.
    unused = queue.starts and queue.last_phy == NO_PHY and end > 0
    if unused and queue.read((end - 1) * _UNIT, _UNIT) != PRE_BLANK:
        yield QueueFinding("the queue contains zeros but no unit", queue.folder, key, end)
    for logic_offset, data in queue.data_behind(end * _UNIT):
        skip = next(index for index, byte in enumerate(data) if byte)
        start = queue.file_at(logic_offset) or 0
        yield QueueFinding(
            "unexpected data after the end of the queue",
            queue.path(start),
            key,
            (logic_offset + skip) // _UNIT,
            logic_offset + skip - start,
        )
        break  # the first byte is enough
    yield from _check_addresses(key, queue, resolve)


def _check_addresses(
    key: QueueKey, queue: FileConsumeQueue, resolve: Resolve
) -> Iterator[QueueFinding]:
    """Yield the units whose extension address is invalid."""
    offset, end = queue.first_offset, queue.max_offset
    while offset < end:
        rows = read_rows(queue, offset, min(_SCAN_UNITS, end - offset))
        for index in np.flatnonzero(rows["tags_code"] <= EXT_ADDRESS_MAX).tolist():
            address = int(rows["tags_code"][index])
            if resolve(*key, address) is not None:
                continue
            at = (offset + index) * _UNIT
            start = queue.file_at(at) or 0
            yield QueueFinding(
                "invalid extension address: no extension unit found there",
                queue.path(start),
                key,
                offset + index,
                at - start,
            )
        offset += len(rows)
        if not len(rows):  # files are missing: the next one may be far away
            held = queue.next_held(offset * _UNIT)
            offset = end if held is None else held // _UNIT
