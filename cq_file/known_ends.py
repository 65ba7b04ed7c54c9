"""Saves the ends of all queues at a clean stop, so that the next open need not access their files.

Without saved ends, an open lists every folder and reads the end of every queue.
They are trusted only after a clean stop and only if no other process has opened the store since:
they are tied to the checkpoint's content and to the time of the file ``lock``, which RocketMQ
writes at each start. They are not trusted if a queue points after the log's end. An open that fails
before the ends are known saves none. The times of the last change of each queue's folder and files
are saved, too: only queues with other times are examined.
"""

import hashlib
import os
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.cq_file import _queue_folders
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.end_columns import Column, write_array, write_column
from cqstore.cq_file.layout import FILE_UNIT
from cqstore.cq_file.listing import FIRST_FILE, check_folder_name
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreError, os_errors
from cqstore.store.files import Descriptor, make_folder, read_file, remove_file, replacing
from cqstore.store.java_numbers import INT_MAX, INT_MIN
from cqstore.store.log.checkpoint import FILE_SIZE
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths

_LOG = StoreLogger(__name__)
_VERSION = 2
_NAME = "file-queue-ends.npz"
_BLOCK = 4096
"""Number of queues whose columns are in memory at the same time."""
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
Block = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
"""Rows of some queues, the number of files of each, and the starts of all these files."""


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
    path, names = ends_path(paths), list(topics)
    text = _NAMES_END.join(names).encode(*_UTF_8)
    try:
        with os_errors("save the ends of the queues", path):
            make_folder(path.parent)
            with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
                write_array(archive, "version", np.array([_VERSION, file_size]))
                write_array(archive, "tie", np.frombuffer(tie, np.uint8))
                write_array(archive, "names", np.frombuffer(text, np.uint8))
                _write_numbers(archive, names, topics)
    except StoreError as exc:
        _LOG.warning("the next open will be slower: %s", exc)


def _write_numbers(archive: zipfile.ZipFile, names: list[str], topics: Topics) -> None:
    """Write the columns of the queues, and of their files."""

    def queues() -> Iterator[FileConsumeQueue]:
        return (queue for name in names for queue in topics[name].values())

    count = sum(len(topics[name]) for name in names)
    rows = (
        (at, queue_id, q.first_offset, q.max_offset, q.last_phy, q.end_phy, *changed_at(q))
        for at, name in enumerate(names)
        for queue_id, q in topics[name].items()
    )
    write_column(archive, "numbers", (count, _NUMBERS), _blocks(rows))
    write_column(archive, "files", (count,), _blocks(len(queue.starts) for queue in queues()))
    files = sum(len(queue.starts) for queue in queues())
    starts = (start for queue in queues() for start in queue.starts)
    write_column(archive, "starts", (files,), _blocks(starts))


def _blocks(rows: Iterator[object]) -> Iterator[list[object]]:
    while block := list(islice(rows, _BLOCK)):
        yield block


def read_ends(paths: StorePaths) -> tuple[int, Iterable[KnownQueue]] | None:
    """Return the saved file size and queues, or ``None`` if they cannot be trusted.

    The queues are read from the file block by block, even if it is removed meanwhile.
    """
    path = ends_path(paths)
    tie = _tie(paths)
    if tie is None or not exists(path):
        return None
    try:
        descriptor = Descriptor(path, os.O_RDONLY)
        with _opened(descriptor) as file:
            _check_sums(file)
            with np.load(file, allow_pickle=False) as columns:
                version, file_size = columns["version"].tolist()
                if version != _VERSION or columns["tie"].tobytes() != tie:
                    return None
                text = columns["names"].tobytes().decode(*_UTF_8)
        names = text.split(_NAMES_END)
        for block in _read_numbers(descriptor):
            _check_values(file_size, names, *block)
    except (*_DAMAGED, StoreError) as exc:
        _LOG.warning(
            "cannot read the saved ends of the queues, scanning the queue files instead: %s", exc
        )
        return None
    return file_size, _queues(path, names, _read_numbers(descriptor))


def _opened(descriptor: Descriptor) -> BinaryIO:
    """Return the file from its beginning on, for one reader at a time."""
    file = open(descriptor.number, "rb", closefd=False)  # noqa: SIM115
    file.seek(0)
    return file


def _read_numbers(descriptor: Descriptor) -> Iterator[Block]:
    """Yield the columns of the queues, block by block.

    Raises:
        ValueError, LookupError, OSError, BadZipFile: the columns are invalid, or cannot be read.
    """
    with _opened(descriptor) as file, zipfile.ZipFile(file) as archive:
        numbers, files, starts = (Column(archive, name) for name in ("numbers", "files", "starts"))
        (count,), (left,) = files.shape, starts.shape
        if numbers.shape != (count, _NUMBERS):
            raise ValueError("invalid shape of a column")
        for at in range(0, count, _BLOCK):
            rows = min(_BLOCK, count - at)
            of_queues = files.take(rows)
            held = sum(of_queues.tolist())  # of Python, which does not overflow
            left -= held
            if (of_queues < 0).any() or left < 0:
                raise ValueError("the number of queue files does not match")
            yield numbers.take(rows), of_queues, starts.take(held)
        if left:
            raise ValueError("the number of queue files does not match")


def _check_sums(file: BinaryIO) -> None:
    """Check the CRC of every column first: sizes in a header are allocated before it is read.

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
    """Check that a block of the columns describes valid queues.

    Raises:
        ValueError, LookupError, IllegalMessageError: the columns are invalid.
    """
    topic, queue_id, first, end, *_ = numbers.T
    ends = np.cumsum(files)
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


def _queues(path: Path, names: list[str], blocks: Iterable[Block]) -> Iterator[KnownQueue]:
    """Yield the queues that the columns of the file describe.

    Raises:
        CorruptionError: the file was changed in place since its values were checked.
    """
    try:
        for numbers, files, starts in blocks:
            left, begin = starts.tolist(), 0
            for row, count in zip(numbers.tolist(), files.tolist(), strict=True):
                name, queue_id, low, high, last_phy, end_phy, folder_at, file_at = row
                own = left[begin : begin + count]
                begin += count
                yield KnownQueue(
                    names[name], queue_id, low, high, last_phy, end_phy, folder_at, file_at,
                    FIRST_FILE if own == FIRST_FILE else own,
                )  # fmt: skip
    except _DAMAGED as exc:
        raise CorruptionError(
            "the saved ends of the queues were changed while they were read: open the store again",
            path=path,
        ) from exc


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
