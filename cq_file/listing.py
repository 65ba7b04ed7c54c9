"""Lists a folder of queues (``FOLDER/TOPIC/QUEUEID/N``) by names and lengths.

The ends of short queues can be found in the same pass, since most of the time is spent on looking
up names. Names that are not queue ids or file offsets are skipped here; ``check`` reports them.

Source: RocketMQ ``AbstractConsumeQueueStore.loadConsumeQueues``, ``MappedFileQueue.load``.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, NamedTuple, NoReturn, TypeVar

from cqstore.cq_file._queue_folders import topic_ends
from cqstore.cq_file.layout import parse_file_name, parse_queue_id
from cqstore.cq_file.queue_files import QueueFiles
from cqstore.store.core._regular_files import regular_files
from cqstore.store.errors import (
    CorruptionError,
    IllegalMessageError,
    StoreConfigError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.files import bytes_on_disk, check_regular, file_name
from cqstore.store.queue.units import QueueKey
from cqstore.store.settings.replica_config import rocketmq_key

_NAME_MAX = 255
"""Maximum length of a folder name in common file systems, in bytes."""
_CHUNK_TOPICS = 256
_CHUNKS_AHEAD = 8
"""Chunks of topics whose queues may wait for the thread that takes them."""
FIRST_FILE = [0]
"""Starts of most queues' files, one list for all of them; no list of starts is ever changed."""


class QueueFolder(NamedTuple):
    """The folder of one queue, and the queue key from its path."""

    topic: str
    queue_id: int
    path: str


class SizeCount(NamedTuple):
    """The number of files of one length, and one of these files."""

    files: int
    example: str


class LogSpan(NamedTuple):
    """Where the log begins and ends, as phy offsets."""

    begin: int
    end: int


class ShortEnd(NamedTuple):
    """The end of a short queue, see ``_short_queue``, found while its folder was listed."""

    start: int
    """Start of its only file, in bytes."""
    size: int
    """Size of the file, in bytes."""
    units: int
    live: int
    """The number of the first of these units that is not before the log."""
    last_phy: int
    end_phy: int


Q = TypeVar("Q", bound=QueueFiles)
MakeQueue = Callable[..., Q]
"""Called with topic, queue id and starts of the files; for a short queue also with its end."""


@dataclass(slots=True)
class Listing(Generic[Q]):
    """Every queue below one folder."""

    queues: dict[str, dict[int, Q]] = field(default_factory=dict)
    """The queues by topic and queue id."""
    empty_topics: list[str] = field(default_factory=list)
    """Topics that have a folder but no queue."""
    sizes: dict[int, SizeCount] = field(default_factory=dict)
    """File length → the files of this length."""
    empty_last: list[str] = field(default_factory=list)
    """Last files of queues that were created but have no length yet."""
    misfits: dict[QueueKey, str] = field(default_factory=dict)
    """Queues with an impossible file, and that file, which is ignored."""

    def add(self, queue: Q) -> None:
        """Add a queue."""
        self.queues.setdefault(queue.topic, {})[queue.queue_id] = queue

    def each(self) -> Iterator[Q]:
        """Yield all queues."""
        return (queue for queues in self.queues.values() for queue in queues.values())


def queue_folders(folder: Path) -> Iterator[QueueFolder]:
    """Yield the folders of queues below ``folder``; nothing if it does not exist.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    for topic in sub_folders(str(folder)):
        yield from _queues_of(topic.name, topic.path)


def _queues_of(topic: str, folder: str) -> Iterator[QueueFolder]:
    """Yield the folders of the queues of one topic.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    for queue in sub_folders(folder):
        queue_id = parse_queue_id(queue.name)
        if queue_id is not None:
            yield QueueFolder(topic, queue_id, queue.path)


def sub_folders(folder: str) -> list["os.DirEntry[str]"]:
    """Return the folders in ``folder``, by name."""
    return [entry for entry in entries(folder) if entry.is_dir()]


def topic_names(folder: Path | str) -> Iterator[str]:
    """Yield the names of the folders in ``folder``, in any order.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    return (entry.name for entry in _scanned(str(folder)) if entry.is_dir())


def entries(folder: str) -> list["os.DirEntry[str]"]:
    """Return the entries of ``folder`` by name; an empty list if it does not exist.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    return sorted(_scanned(folder), key=lambda entry: entry.name)


def _scanned(folder: str) -> Iterator["os.DirEntry[str]"]:
    """Yield the entries of ``folder`` in any order: a list of a million takes much memory."""
    with os_errors("list a queue folder", folder):
        try:
            with os.scandir(folder) as found:
                yield from found
        except FileNotFoundError:
            return


def list_queues(
    folder: Path,
    make: MakeQueue[Q],
    topics: Collection[str] | None = None,
    log: LogSpan | None = None,
) -> Listing[Q]:
    """List every queue and file below ``folder``, or those of ``topics``.

    With the span of the ``log``, the ends of short queues are found too, in threads.

    Raises:
        StoreIOError: a folder cannot be listed.
    """
    listing = Listing[Q]()
    names = sorted(name for name in topic_names(folder) if topics is None or name in topics)
    for topic, found in _short_queues(str(folder), names, log):
        queues = _unread_queues(topic, f"{folder}/{topic}") if found is None else found
        if not queues:
            listing.empty_topics.append(topic)
        for queue_id, end in queues:
            if end is None:
                queue = make(topic, queue_id, [])
                queue.starts = list_files(queue, listing)
            else:
                start, size, *_ = end
                starts = [start] if start else FIRST_FILE
                queue = make(topic, queue_id, starts, ShortEnd(*end))
                _count_size(listing, queue, file_name(start), size)
            listing.add(queue)
    return listing


_Queues = list[tuple[int, tuple[int, int, int, int, int, int] | None]]


def _unread_queues(topic: str, folder: str) -> _Queues:
    """Return the queues of one topic, without their ends."""
    return [(queue.queue_id, None) for queue in _queues_of(topic, folder)]


def _short_queues(
    folder: str, topics: list[str], log: LogSpan | None
) -> Iterator[tuple[str, _Queues | None]]:
    """Yield each topic with its queues and the ends of short ones; ``None``: list them instead."""
    if log is None:
        yield from ((topic, None) for topic in topics)
        return
    chunks = [topics[at : at + _CHUNK_TOPICS] for at in range(0, len(topics), _CHUNK_TOPICS)]
    if len(chunks) <= 1:
        yield from zip(topics, topic_ends(folder, topics, *log), strict=True)
        return
    waiting: deque[tuple[list[str], Future[list[_Queues | None]]]] = deque()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(topic_ends, folder, chunk, *log)))
            if len(waiting) >= _CHUNKS_AHEAD:
                names, ends = waiting.popleft()
                yield from zip(names, ends.result(), strict=True)
        for names, ends in waiting:
            yield from zip(names, ends.result(), strict=True)


def list_files(queue: Q, listing: Listing[Q]) -> list[int]:
    """Return the starts of a queue's files, and record invalid files in ``listing``.

    Raises:
        StoreIOError: the folder cannot be listed.
    """
    starts: list[int] = []
    empty: str | None = None
    folder = queue.folder
    for start, name, size in _sized_files(folder):
        if empty is not None:  # and another file follows
            listing.misfits[queue.key] = empty
        if size == 0:
            empty = f"{folder}/{name}"
            continue
        starts.append(start)
        _count_size(listing, queue, name, size)
    if empty is not None:
        listing.empty_last.append(empty)
    return starts


def _count_size(listing: Listing[Q], queue: Q, name: str, size: int) -> None:
    known = listing.sizes.get(size)
    files, example = known or (0, f"{queue.folder}/{name}")
    listing.sizes[size] = SizeCount(files + 1, example)


def _sized_files(folder: str) -> Iterator[tuple[int, str, int]]:
    """Yield start, name and size of each queue file in a folder, by name."""
    files = regular_files(folder)
    if files is not None:
        for name, size, *_ in files:
            if (start := parse_file_name(name)) is not None:
                yield start, name, size
        return
    for entry in entries(folder):
        start = parse_file_name(entry.name)
        if start is None:
            continue
        with os_errors("access a queue file", entry.path):
            if not entry.is_file():
                check_regular(entry.path)
            size = entry.stat().st_size
        yield start, entry.name, size


def sort_starts(names: Iterable[str]) -> list[int]:
    """Return the starts of queue files, increasing; names of other files are skipped."""
    found = map(parse_file_name, names)
    return sorted(start for start in found if start is not None)


def fit_files(
    listing: Listing[Q], configured: int, unit: int, *, explicit: bool, setting: str = ""
) -> int:
    """Return the size of the files of ``listing``; ``configured`` if there are no files.

    The few files with another size, or with a name that does not fit the size, are removed from
    their queues and recorded in ``misfits``.

    Args:
        listing: the files.
        configured: the size in the settings, in bytes.
        unit: size of a unit; every file has a whole number of units; 1 for any size.
        explicit: the setting was given, so the files must have this size.
        setting: its field of ``StoreConfig``, for an error.

    Raises:
        StoreConfigError: most files have one size, and none has the given size: the setting is
            wrong, and a broker would not start with it.
        TruncatedRecordError: as ``CorruptionError``, and the file in the message is surely
            truncated: it has a partial unit, or another file has the expected size.
        CorruptionError: at least half of the files differ from the given size or, without one, from
            each other, or have names that do not fit their size.
        StoreIOError: a file cannot be accessed.
    """
    sizes = listing.sizes
    if not sizes:
        return configured
    limit = max(sizes, key=lambda size: (size % unit == 0, sizes[size].files, size == configured))
    expected = configured if explicit else limit
    total = sum(found.files for found in sizes.values())
    if explicit and expected not in sizes and not limit % unit and 2 * sizes[limit].files > total:
        _refuse_setting(rocketmq_key(setting), configured, limit, sizes[limit].example)
    if expected not in sizes or 2 * sizes[expected].files <= total:
        got = limit if limit != expected else min(sizes.keys() - {limit})
        _refuse_size(sizes, got, expected, unit)
    if expected % unit:
        raise TruncatedRecordError(
            "queue files do not hold whole units",
            path=Path(sizes[expected].example),
            position=expected,
            expected=f"a multiple of {unit} bytes",
            got=expected,
        )
    if 2 * leave_out_misfits(listing, expected) > total:
        raise CorruptionError(
            "queue files have invalid names", path=Path(next(iter(listing.misfits.values()))),
            expected=f"multiples of {expected}",
        )  # fmt: skip
    return expected


def _refuse_size(sizes: dict[int, SizeCount], got: int, expected: int, unit: int) -> NoReturn:
    """Refuse files of a size that is not the expected one.

    Raises:
        CorruptionError: always; TruncatedRecordError if the files are surely truncated.
    """
    cut = got % unit or (expected in sizes and got < expected)
    kind = TruncatedRecordError if cut else CorruptionError
    raise kind(
        "queue files have the wrong size", path=Path(sizes[got].example), expected=expected,
        position=got if cut else None, got=got,
    )  # fmt: skip


def _refuse_setting(key: str, configured: int, found: int, example: str) -> NoReturn:
    """Refuse a configured size that differs from the size of the files.

    Raises:
        StoreConfigError: always.
    """
    raise StoreConfigError(
        f"{key}={configured} is a wrong setting, or every file was truncated: queue files here have"
        f" {found} bytes, and a broker does not start with another size. Remove {key} from the"
        f" settings, or set it to {found}",
        path=Path(example),
    )


def leave_out_misfits(listing: Listing[Q], expected: int) -> int:
    """Remove the files with a size other than ``expected`` or a wrong name; return their number.

    Raises:
        StoreIOError: a file cannot be accessed.
    """
    left_out = 0
    sizes_differ = listing.sizes.keys() != {expected}
    for queue in listing.each():
        unfit = {start for start in queue.starts if start % expected}
        if sizes_differ:
            unfit.update(start for start in queue.starts if _size(queue, start) != expected)
        if unfit:
            left_out += len(unfit)
            listing.misfits[queue.key] = queue.path(min(unfit))
            queue.starts = [start for start in queue.starts if start not in unfit]
    return left_out


def _size(queue: QueueFiles, start: int) -> int:
    path = queue.path(start)
    with os_errors("access a queue file", path):
        return os.stat(path).st_size  # noqa: PTH116 - there are many of them


def allocated_bytes(folder: Path) -> int:
    """Return the disk blocks of all files of queues below ``folder``, in bytes."""
    return sum(_allocated_bytes(queue.path) for queue in queue_folders(folder))


def allocated_bytes_of(topic_folder: Path) -> int:
    """Return the disk blocks of all files of the queues of one topic, in bytes; 0 without any."""
    return sum(_allocated_bytes(queue.path) for queue in sub_folders(str(topic_folder)))


def _allocated_bytes(queue_folder: str) -> int:
    total = 0
    for entry in entries(queue_folder):
        with suppress(FileNotFoundError):  # removed between the listing and here
            total += bytes_on_disk(entry.stat()) if entry.is_file() else 0
    return total


def check_folder_name(topic: str) -> None:
    """Refuse a topic whose name is not a valid folder name.

    Raises:
        IllegalMessageError: the name is not valid.
    """
    if not topic or topic in {".", ".."} or "/" in topic or "\0" in topic:
        raise IllegalMessageError(
            f"invalid topic name {topic!r}: queue files need a valid folder name (not empty, '.' or"
            " '..', without '/' and NUL)"
        )
    try:
        length = len(os.fsencode(topic))
    except UnicodeEncodeError as exc:
        raise IllegalMessageError(f"invalid topic name {topic!r}: not valid Unicode") from exc
    if length > _NAME_MAX:
        raise IllegalMessageError(
            f"topic name {topic[:40]!r}... is too long: {length} bytes, a folder name has at most"
            f" {_NAME_MAX}"
        )


def has_queue_files(folder: Path) -> bool:
    """Return whether there is a folder of a queue with a file in it."""
    return any(
        entry.is_file()
        for topic in topic_names(folder)
        for queue in _queues_of(topic, f"{folder}/{topic}")
        for entry in entries(queue.path)
    )
