"""A cache of open queue files, since a million queues must not need a million descriptors.

A caller may use the number of an ``OpenFile`` as long as it holds the object: eviction only drops
the cache's own reference, and the descriptor is closed with the last reference. So nothing is
pinned, and no lock is taken for a file that is already open. A use only sets a flag of the file:
eviction takes the oldest file whose flag is not set, and clears the flags that it passes (CLOCK).
"""

import errno
import os
import resource
from collections import OrderedDict
from pathlib import Path

from cqstore.cq_file._table import OpenFile
from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import StoreClosedError, os_errors
from cqstore.store.files import open_regular

_LOG = StoreLogger(__name__)
_RESERVE = 256
"""Descriptors left to the log, the index, RocksDB and the program around the store."""
_MIN_OPEN = 8
_MAX_MAPS = Path("/proc/sys/vm/max_map_count")
_NEAR_PERCENT = 90
"""Share of a limit above which a warning is given."""
_NO_DESCRIPTOR_LEFT = {errno.EMFILE, errno.ENFILE}


def descriptor_limit(wanted: int) -> int:
    """Return the number of descriptors to keep open: ``wanted``, or the limit of the process.

    Never exceeds the process's soft limit minus a reserve (half of a small limit).
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return max(wanted, _MIN_OPEN)
    return max(min(wanted, soft - min(_RESERVE, soft // 2)), _MIN_OPEN)


def warn_from(limit: int) -> int:
    """Return the number of queues at which ``limit`` or the kernel limit is close."""
    maps = _max_maps()
    minimum = limit if maps is None else min(limit, maps)
    return max(minimum * _NEAR_PERCENT // 100, 1)


def limit_warning(queues: int, limit: int) -> str | None:
    """Return a warning about this number of file queues, or ``None`` far below the limits.

    Args:
        queues: number of queues, each with at least one file.
        limit: maximum number of descriptors in the cache, see ``descriptor_limit``.
    """
    if queues < warn_from(limit):
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
    maps = _max_maps()
    return (
        f"{queues} file queues are close to a limit or above it. Keeping all their files open"
        f" requires queueFilesMax={queues} ({limit} can be used) and an RLIMIT_NOFILE of"
        f" {queues + _RESERVE} (it is {allowed}). Above these limits files are opened and closed in"
        " turn, which is slower, but no data is lost. RocketMQ itself needs one descriptor and one"
        f" memory map per file, and a vm.max_map_count of more than {queues} (it is"
        f" {'unknown' if maps is None else maps}). Queues in RocksDB have none of these limits"
    )


class LimitWatch:
    """Warning, given once, when the number of queues is close to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._from = warn_from(limit)
        self._warned = False

    def check(self, queues: int) -> None:
        """Warn once if ``queues`` is close to a limit."""
        if queues < self._from or self._warned:
            return
        warning = limit_warning(queues, self._limit)
        if warning is not None:
            self._warned = True
            _LOG.warning("%s", warning)


def _max_maps() -> int | None:
    try:
        return int(_MAX_MAPS.read_text())
    except (OSError, ValueError):
        return None


class DescriptorCache:
    """Cache of open files by path (CLOCK eviction). Thread-safe."""

    def __init__(self, limit: int, *, read_only: bool) -> None:
        self.limit = limit
        self.read_only = read_only
        self._flags = os.O_RDONLY if read_only else os.O_RDWR
        self._entries: OrderedDict[str, OpenFile] = OrderedDict()
        # Guards opening, forgetting and closing; not the look-up.
        self.lock = CheckedLock("the opening of a queue file")
        self._closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, path: str) -> OpenFile:
        """Return the open file at ``path``. Keep the object, not its number, while using it.

        Raises:
            FileNotFoundError: the file does not exist; callers decide whether that is an error.
            StoreIOError: the file cannot be opened.
            CorruptionError: the path is not a regular file.
            StoreClosedError: after ``close``.
        """
        descriptor = self._entries.get(path)
        if descriptor is None:
            return self._open(path, self._flags)
        descriptor.used = True
        return descriptor

    @property
    def entries(self) -> OrderedDict[str, OpenFile]:
        """Return the open files by path, for compiled code, which sets ``used`` on each use."""
        return self._entries

    def create(self, path: str, size: int) -> OpenFile:
        """Open the file at ``path``; create it if needed, sparse, with ``size`` bytes.

        Raises:
            FileNotFoundError: the folder is missing.
            StoreIOError: the file cannot be created.
        """
        descriptor = self._open(path, self._flags | os.O_CREAT)
        try:
            os.ftruncate(descriptor.number, size)
        except OSError:  # converted only here, as there may be 100,000 files
            with os_errors("set the size of a queue file", path):
                raise
        return descriptor

    def forget(self, path: str) -> None:
        """Release the file at ``path``. Call it after ``path`` was unlinked.

        Opening and caching are one step under the lock: a reader that opened the old file before
        the unlink has cached it by now, and no reader can open it later.
        """
        with self.lock.entry():
            dropped = self._entries.pop(path, None)
        del dropped  # not under the lock: closing the last descriptor frees the file's blocks

    def close(self) -> None:
        """Close all files; a file in use is closed when its last user releases it."""
        with self.lock.entry():
            self._closed = True
            self._entries.clear()

    def _open(self, path: str, flags: int) -> OpenFile:
        """Return the descriptor of a file; open the file if it is not cached.

        Raises:
            StoreClosedError: the store is closed.
        """
        with self.lock.entry():
            if self._closed:
                raise StoreClosedError("the queue store is closed")
            known = self._entries.get(path)
            if known is not None:
                return known
            while len(self._entries) >= self.limit:
                self._evict_one()
            descriptor = self._entries[path] = self._open_file(path, flags)
            return descriptor

    def _evict_one(self) -> None:
        """Release the oldest file that was not used since its last round, under the lock."""
        entries = self._entries
        for _ in range(len(entries)):  # at most one round, while other threads use them
            descriptor = entries[oldest := next(iter(entries))]
            if not descriptor.used:
                break
            descriptor.used = False
            entries.move_to_end(oldest)
        entries.popitem(last=False)

    def _open_file(self, path: str, flags: int) -> OpenFile:
        """Open a file; if no descriptor is left, close half of those in the cache.

        Raises:
            FileNotFoundError: the file does not exist.
            StoreIOError: the file cannot be opened.
        """
        while True:
            try:
                return OpenFile(open_regular(path, flags), path)
            except FileNotFoundError:
                raise
            except OSError as exc:
                if exc.errno not in _NO_DESCRIPTOR_LEFT or not self._entries:
                    with os_errors("open a queue file", path):
                        raise
                # Other code in the process has used up the limit: close half of the cache.
                for _ in range((len(self._entries) + 1) // 2):
                    self._entries.popitem(last=False)
