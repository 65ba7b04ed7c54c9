"""Saves the ends of all queues at a clean stop, so that the next open need not access their files.

Without saved ends, an open lists every folder and reads the end of every queue.
They are trusted only after a clean stop and only if no other process has opened the store since:
they are tied to the checkpoint's content and to the time of the file ``lock``, which RocketMQ
writes at each start. They are not trusted if a queue points after the log's end. An open that fails
before the ends are known saves none. The times of the last change of each queue's folder and files
are saved, too: only queues with other times are examined.
"""

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_file import _queue_folders
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_file.listing import FIRST_FILE, check_folder_name
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreError, os_errors
from cqstore.store.files import make_folder, read_file, reading, remove_file, replacing
from cqstore.store.java_numbers import INT_MAX, INT_MIN
from cqstore.store.log.checkpoint import FILE_SIZE
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_LOG = StoreLogger(__name__)
_VERSION = 2
_NAME = "file-queue-ends.npz"
_BLOCK = 4096
"""Number of queues whose columns are numbers of Python at the same time."""
_NUMBERS = 8
"""Columns per queue: topic, queue id, and the numbers of ``KnownQueue``."""
_NAMES_END = "\0"
_UTF_8 = ("utf-8", "surrogateescape")  # as folder names are read
_DAMAGED = (
    OSError, ValueError, LookupError, EOFError, RuntimeError, AttributeError, TypeError,
    MemoryError, zipfile.BadZipFile, zlib.error, SystemError,
)  # fmt: skip
"""Exceptions of ``zipfile`` and numpy for damaged bytes, for example for an "encrypted" flag.

``SystemError`` is raised for valid files, too: numpy parses headers as Python source, and before
Python 3.12 the garbage collector may then call a finalizer that also parses something.
"""
Topics = Mapping[str, Mapping[int, FileConsumeQueue]]


class KnownQueue(NamedTuple):
    """Start, end and files of one queue at the last clean stop."""

    topic: str
    queue_id: int
    first_offset: int
    max_offset: int
    last_phy: int
    end_phy: int
    folder_changed: int
    """Time of the last change of the folder, in ns; 0: unknown."""
    file_changed: int
    """Time of the last change of any of its files, in ns; 0: no file."""
    starts: list[int]
    """Start of each file, in bytes from the start of the queue."""


def changed_at(queue: FileConsumeQueue) -> tuple[int, int]:
    """Return the times of the last change of a queue folder and of its files, ns.

    Creating or removing a file changes the folder; writing to a file changes that file. 0: there
    is no file, or one has another size.
    """
    paths = [queue.path(start) for start in queue.starts]
    return _queue_folders.changed_at(queue.folder, paths, queue.access.mapped_file_size)


def write_ends(paths: StorePaths, file_size: int, topics: Topics) -> None:
    """Save the ends of every queue.

    A failure is logged: the next open then reads the queue files.
    """
    tie = _tie(paths)
    if tie is None:
        return
    names = list(topics)
    queues = [queue for name in names for queue in topics[name].values()]
    path = ends_path(paths)
    try:
        with os_errors("save the ends of the queues", path):
            make_folder(path.parent)
            with replacing(path) as file:
                np.savez(
                    file,
                    version=np.array([_VERSION, file_size]),
                    tie=np.frombuffer(tie, np.uint8),
                    names=np.frombuffer(_NAMES_END.join(names).encode(*_UTF_8), np.uint8),
                    numbers=_numbers(names, topics, len(queues)),
                    files=np.array([len(q.starts) for q in queues], np.int64),
                    starts=np.array([start for q in queues for start in q.starts], np.int64),
                )
    except StoreError as exc:
        _LOG.warning("the next open will be slower: %s", exc)


def _numbers(names: list[str], topics: Topics, count: int) -> NDArray[np.int64]:
    """Return the columns of ``count`` queues, block by block: a list of all takes more memory."""
    rows = (
        (at, queue_id, q.first_offset, q.max_offset, q.last_phy, q.end_phy, *changed_at(q))
        for at, name in enumerate(names)
        for queue_id, q in topics[name].items()
    )
    numbers, at = np.empty((count, _NUMBERS), np.int64), 0
    while block := list(islice(rows, _BLOCK)):
        numbers[at : at + len(block)] = block
        at += len(block)
    return numbers


def read_ends(paths: StorePaths) -> tuple[int, Iterable[KnownQueue]] | None:
    """Return the saved file size and queues, or ``None`` if they cannot be trusted."""
    path = ends_path(paths)
    tie = _tie(paths)
    if tie is None or not exists(path):
        return None
    try:
        with reading(path) as file:
            _check_sums(file)
            with np.load(file, allow_pickle=False) as columns:
                version, file_size = columns["version"].tolist()
                if version != _VERSION or columns["tie"].tobytes() != tie:
                    return None
                text = columns["names"].tobytes().decode(*_UTF_8)
                numbers, files = columns["numbers"], columns["files"]
                starts = columns["starts"]
        names = text.split(_NAMES_END)
        _check_values(file_size, names, numbers, files, starts)
    except (*_DAMAGED, StoreError) as exc:
        _LOG.warning(
            "cannot read the saved ends of the queues, scanning the queue files instead: %s", exc
        )
        return None
    return file_size, _queues(names, numbers, files, starts)


def _check_sums(file: BinaryIO) -> None:
    """Check the CRC of every column first: sizes in its header are allocated before it is read.

    Raises:
        BadZipFile: a CRC does not match, or the file is not an archive.
    """
    with zipfile.ZipFile(file) as archive:
        places = [each.header_offset for each in archive.infolist()]
        if len(set(places)) < len(places):  # zipfile only warns, since CPython 3.13
            raise zipfile.BadZipFile("two columns have the same offset")
        if (bad := archive.testzip()) is not None:
            raise zipfile.BadZipFile(f"bad CRC-32 of {bad}")
    file.seek(0)


def _check_values(
    file_size: int,
    names: list[str],
    numbers: NDArray[np.int64],
    files: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> None:
    """Check that the columns describe valid queues.

    Raises:
        ValueError, LookupError, IllegalMessageError: the columns are invalid.
    """
    if numbers.shape != (len(files), _NUMBERS) or {numbers.dtype, files.dtype, starts.dtype} != {
        np.dtype(np.int64)
    }:
        raise ValueError("invalid shape or type of a column")
    topic, queue_id, first, end, *_ = numbers.T
    ends = np.cumsum(files)
    if (files < 0).any() or (ends[-1] if len(ends) else 0) != len(starts) or starts.ndim != 1:
        raise ValueError("the number of queue files does not match")
    behind = np.zeros(len(files), np.int64)  # logic offset after the last file of each queue
    behind[files > 0] = starts[ends[files > 0] - 1] + file_size
    rising = np.ones(len(starts), bool)
    rising[1:] = np.diff(starts) > 0
    rising[(ends - files)[files > 0]] = True  # the first file of a queue
    good = (
        file_size > 0 and file_size % FILE_UNIT.size == 0
        and ((topic >= 0) & (topic < len(names))).all()
        and ((queue_id >= INT_MIN) & (queue_id <= INT_MAX)).all()
        and ((first >= 0) & (first <= end) & (end <= behind // FILE_UNIT.size)).all()
        and ((starts >= 0) & (starts % file_size == 0)).all() and rising.all()
    )  # fmt: skip
    if not good:
        raise ValueError("values out of range")
    for at in set(topic.tolist()):  # np.unique would import numpy.ma
        check_folder_name(names[at])


def forget_ends(paths: StorePaths) -> None:
    """Remove the saved ends durably, before anything is written to the queues.

    Otherwise they could be trusted after a crash whose abort marker was removed by hand.

    Raises:
        StoreIOError: the file cannot be removed.
    """
    path = ends_path(paths)
    if not exists(path):
        return
    with os_errors("remove the saved ends of the queues", path):
        remove_file(path)


def _queues(
    names: list[str],
    numbers: NDArray[np.int64],
    files: NDArray[np.int64],
    starts: NDArray[np.int64],
) -> Iterable[KnownQueue]:
    """Yield the queues that the columns of the file describe."""
    at = 0
    for block in range(0, len(files), _BLOCK):
        counts = files[block : block + _BLOCK].tolist()
        left = starts[at : at + sum(counts)].tolist()
        at += len(left)
        begin = 0
        for row, count in zip(numbers[block : block + _BLOCK].tolist(), counts, strict=True):
            name, queue_id, low, high, last_phy, end_phy, folder_changed, file_changed = row
            own = left[begin : begin + count]
            begin += count
            yield KnownQueue(
                names[name], queue_id, low, high, last_phy, end_phy, folder_changed, file_changed,
                FIRST_FILE if own == FIRST_FILE else own,
            )  # fmt: skip


def _tie(paths: StorePaths) -> bytes | None:
    """Return a value that changes when another process opens the store; ``None``: no lock file."""
    try:
        stamp = paths.lock.stat().st_mtime_ns
        checkpoint = b""
        if exists(paths.checkpoint):
            checkpoint = read_file(paths.checkpoint, FILE_SIZE)
    except (OSError, CorruptionError):
        return None
    return hashlib.sha256(b"%d %s" % (stamp, checkpoint)).digest()


def ends_path(paths: StorePaths) -> Path:
    """Return the path of the saved ends."""
    return paths.own / _NAME
