"""Counters of RocksDB in a running store, as last written to RocksDB's own log.

A reader of a running store has its own database object, whose counters do not include the work of
the store's database object.
"""

import os
import re
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import os_errors
from cqstore.store.files import reading
from cqstore.store.path_kind import is_dir, matching

_HEADING = re.compile(rb"^(\S+) .*\] STATISTICS:\s*$", re.MULTILINE)
_COUNTER = re.compile(rb"^ ?(rocksdb\.[a-z.]+) COUNT : (\d+)$", re.MULTILINE)
_BEHIND_COUNTERS = re.compile(rb"^rocksdb\.\S+ P50 : ", re.MULTILINE)
"""Name of the first histogram: a dump without it may be incomplete, still being written."""

_MAX_LOG = 64 << 20
"""Bytes read at a log's end: more than one dump of RocksDB with cqstore's settings."""


class LoggedCounters(NamedTuple):
    """RocksDB's counters since the database was opened, until ``time``."""

    time: str
    """Local time, in RocksDB's format."""
    counts: dict[str, int]
    """By RocksDB's names, such as ``rocksdb.block.cache.hit``."""


def logged_counters(log_folder: Path) -> LoggedCounters | None:
    """Return the newest complete counters in the logs of ``log_folder``, or ``None``.

    Raises:
        StoreIOError: a log cannot be read.
    """
    with os_errors("read RocksDB's log", log_folder):
        if not is_dir(log_folder):
            return None
        logs = sorted(matching(log_folder, "*LOG*"), key=lambda path: path.stat().st_mtime_ns)
        for path in reversed(logs):
            with reading(path) as file:
                file.seek(max(os.fstat(file.fileno()).st_size - _MAX_LOG, 0))
                data = file.read(_MAX_LOG)
            for heading in reversed(list(_HEADING.finditer(data))):
                end = _BEHIND_COUNTERS.search(data, heading.end())
                if end is not None:
                    counts = counters_in(data[heading.end() : end.start()])
                    return LoggedCounters(heading[1].decode(errors="replace"), counts)
    return None


def counters_in(text: bytes) -> dict[str, int]:
    """Return the counters of a dump of RocksDB's statistics, by its names."""
    return {match[1].decode(): int(match[2]) for match in _COUNTER.finditer(text)}
