"""Where a log ends: the place to start looking, what lies behind the end, and cutting it off.

Opening destroys nothing. What lies behind the end of the log is either nothing, or a torn tail
(saved below ``cqstore/cut`` before it is zeroed), or damage with valid records behind it, which is
refused until an operator says so.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``,
``isMappedFileMatchedRecover``.
"""

import os
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from store.errors import CorruptionError, os_errors
from store.log.commit_log import CommitLog
from store.log.mapped_file import MappedFile, sync_folder
from store.record.decoder import check_record, record_span
from store.record.record_layout import BLANK_SIZE, MAGIC_V1, MAGIC_V2
from store.record.scan import ScanRules

_CHUNK = 4 << 20
_MAGIC_AT = 4
_MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)]


def is_boundary(log: CommitLog, phy_offset: int, rules: ScanRules) -> bool:
    """Return whether a whole valid record, a blank one, or a file starts at ``phy_offset``."""
    file = log.files.find(phy_offset)
    if file is None:
        return False
    position = phy_offset - file.file_from_offset
    if position == 0:
        return True
    left = file.file_size - position
    try:
        size = record_span(file.read(position, BLANK_SIZE), 0, left, phy_offset)
        if size:
            check_record(
                file.read(position, size), phy_offset,
                check_crc=rules.check_crc, property_crc=rules.property_crc,
            )  # fmt: skip
    except CorruptionError:
        return False
    return True


def scan_start(
    log: CommitLog, wanted: int, hint: int, rules: ScanRules, *, trust_wanted: bool
) -> int:
    """Return the boundary at or before ``wanted`` from which to scan, as near as can be proven.

    ``hint`` may be the start of a record (the checkpoint's ``confirm_phy_offset``). With
    ``trust_wanted`` (a clean stop) ``wanted`` also counts where nothing but zeros lies behind it.
    Walks back as many files as it must: RocketMQ stops after ten and loses units (spec 19.3.3).
    """
    low, end = max(log.min_phy_offset(), 0), log.files.end_offset()
    if wanted <= low:
        return low
    wanted = min(wanted, end)
    if wanted < end and is_boundary(log, wanted, rules):
        return wanted
    if trust_wanted and not data_behind(log, wanted):
        return wanted
    file = log.files.find(wanted if wanted < end else end - 1)
    start = low if file is None else file.file_from_offset
    if start < hint <= wanted and is_boundary(log, hint, rules):
        return hint
    while start > low:
        file = log.files.find(start)
        if file is not None and log.first_record(file) is not None:
            return start
        start -= log.files.file_size
    return low


def data_behind(log: CommitLog, phy_offset: int) -> list[tuple[MappedFile, int, int]]:
    """Return the spans behind ``phy_offset`` that hold a byte other than zero.

    Each is a file and two positions in it: the first such byte and the end of the last one. Holes
    of sparse files are not read.
    """
    found: list[tuple[MappedFile, int, int]] = []
    for file in log.files:
        position = max(phy_offset - file.file_from_offset, 0)
        if position >= file.file_size:
            continue
        first, last = -1, -1
        for start, end in file.data_spans(position):
            for at in range(start, end, _CHUNK):
                data = file.read_raw(at, min(_CHUNK, end - at))
                if data.count(0) == len(data):
                    continue
                first = first if first >= 0 else at + len(data) - len(data.lstrip(b"\0"))
                last = at + len(data.rstrip(b"\0"))
        if first >= 0:
            found.append((file, first, last))
    return found


def valid_record_behind(log: CommitLog, phy_offset: int) -> int | None:
    """Return where the first valid record behind ``phy_offset`` starts, if there is one.

    A record counts only if it says itself that it lies where it was found.
    """
    for file, _, last in data_behind(log, phy_offset):
        base = file.file_from_offset
        begin = max(phy_offset + 1 - base, 0)
        at = begin
        while at < last:
            data = file.read_raw(at, min(_CHUNK, file.file_size - at))
            for hit in _hits(data):
                start = base + at + hit - _MAGIC_AT
                if start >= base + begin and _is_record(file, start):
                    return start
            at += max(len(data) - (_MAGIC_AT + 3), 1)
    return None


def _hits(data: bytes) -> list[int]:
    hits: list[int] = []
    for magic in _MAGICS:
        at = data.find(magic)
        while at >= 0:
            hits.append(at)
            at = data.find(magic, at + 1)
    return sorted(hits)


def _is_record(file: MappedFile, start: int) -> bool:
    position = start - file.file_from_offset
    try:
        head = file.read_raw(position, BLANK_SIZE)
        size = record_span(head, 0, file.file_size - position, start)
        if not size:
            return False
        check_record(file.read_raw(position, size), start, check_crc=True, property_crc=False)
    except CorruptionError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class SavedTail:
    """Bytes that were cut off the log, and where they were put."""

    phy_offset: int
    size: int
    path: Path


def _unused(folder: Path, name: str) -> Path:
    """Return a path for ``name``, numbered if it was saved before in the same second."""
    names = (f"{name}-{number}" if number else name for number in count())
    return next(path for path in map(folder.joinpath, names) if not path.exists())


def save_tail(log: CommitLog, phy_offset: int, folder: Path) -> list[SavedTail]:
    """Copy everything but zeros behind ``phy_offset`` below ``folder``, durably.

    One file a commit log file, named by phy offset and time; it begins at ``phy_offset`` or at the
    start of the later log file.

    Raises:
        StoreIOError, DiskFullError: it could not be saved; the log is untouched.
    """
    saved: list[SavedTail] = []
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    for file, _, last in data_behind(log, phy_offset):
        first = max(phy_offset - file.file_from_offset, 0)
        start = file.file_from_offset + first
        with os_errors("save the cut tail of the log", folder):
            folder.mkdir(parents=True, exist_ok=True)
            path = _unused(folder, f"{start:020d}-{stamp}-{os.getpid()}")
            with path.open("xb") as out:
                for at in range(first, last, _CHUNK):
                    out.write(file.read_raw(at, min(_CHUNK, last - at)))
                out.flush()
                os.fsync(out.fileno())
            sync_folder(folder)
        saved.append(SavedTail(start, last - first, path))
    return saved
