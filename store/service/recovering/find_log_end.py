"""The end of a log: where to start the search, and the bytes after the end.

The log is not changed here: ``cut_off`` truncates it. After its end is nothing, or a torn tail
(saved below ``cqstore/cut`` before it is zeroed), or damage followed by valid records, which is
refused until an operator allows the loss.

Source: RocketMQ ``CommitLog.recoverNormally``, ``recoverAbnormally``,
``isMappedFileMatchedRecover``.
"""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

from cqstore.store.errors import (
    CorruptionError,
    MagicCodeError,
    RefusedStoreError,
    TruncatedRecordError,
    os_errors,
)
from cqstore.store.files import file_name, make_folder, sync_folder
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.log_files import newest_files_missing
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.log.synced_mark import SyncedMark
from cqstore.store.path_kind import exists
from cqstore.store.record.decoder import check_record, record_span
from cqstore.store.record.record_layout import BLANK_SIZE, HEAD, MAGIC_V1, MAGIC_V2
from cqstore.store.record.scan import RecordScan, ScannedRecord, ScanRules

PROVEN_BYTES = 1 << 20
"""Minimum number of bytes at the end of the log that every opening checks."""
_CHUNK = 4 << 20
_ZEROS = bytes(_CHUNK)
_MAGIC_AT = 4
_SECTOR = 512
"""Minimum number of bytes that a disk writes atomically."""
_MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)]


def is_boundary(log: CommitLog, phy_offset: int, rules: ScanRules) -> bool:
    """Return whether a valid record, a blank record, or a file starts at ``phy_offset``."""
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
    """Return the nearest proven boundary at or before ``wanted``, where a scan can start.

    ``hint`` may be the start of a record (the checkpoint's ``confirm_phy_offset``). With
    ``trust_wanted`` (a clean stop) ``wanted`` is also accepted if only zeros follow it. In both
    cases the last ``PROVEN_BYTES`` before it must be sound records that end there. Goes back as
    many files as needed: RocketMQ stops after ten and loses units.
    """
    low, end = max(log.min_phy_offset(), 0), log.files.end_offset()
    if wanted <= low:
        return low
    wanted = min(wanted, end)
    good = (wanted < end and is_boundary(log, wanted, rules)) or (
        trust_wanted and not data_behind(log, wanted)
    )
    if good and last_before(log, wanted, rules) is not None:
        return wanted
    file = log.files.find(wanted - 1 if good or wanted == end else wanted)
    start = low if file is None else file.file_from_offset
    if not good and start < hint <= wanted and is_boundary(log, hint, rules):
        return hint
    while start > low:
        file = log.files.find(start)
        if file is not None and log.first_record(file) is not None:
            return start
        start -= log.files.file_size
    return low


def last_before(log: CommitLog, end: int, rules: ScanRules) -> ScannedRecord | None:
    """Return the last record before ``end`` if it ends there and the records before it are sound.

    Checks ``PROVEN_BYTES`` of the file, or as many as the last record needs.
    """
    file = log.files.find(end - 1)
    if file is None:
        return None
    last, behind = None, -1
    blanks: list[tuple[int, int]] = []
    try:
        for last in log.scan(_some_head(file, end), end, rules, blanks):
            behind = last.phy_offset + last.size
    except CorruptionError:
        return None
    behind += sum(left for at, left in blanks if at == behind)
    return last if behind == end else None


def _some_head(file: MappedFile, end: int) -> int:
    """Return the start of a record about ``PROVEN_BYTES`` before ``end``, according to its head.

    This is no proof of a record: the scan checks that. The file's start if there is no such head.
    """
    behind = end - file.file_from_offset
    span = PROVEN_BYTES
    while span < behind:
        for start in _heads(file, behind - span, behind):
            return start
        span *= 2
    return file.file_from_offset


def _heads(file: MappedFile, position: int, behind: int) -> Iterator[int]:
    """Yield the phy offsets in a range of ``file`` where a head contains its own offset."""
    last = min(behind, file.file_size - HEAD.size)
    for at in range(position, last, _CHUNK):
        magics = min(_CHUNK, last - at) + len(_MAGICS[0]) - 1  # for as many heads, and no more
        for hit in _hits(file.read_raw(at + _MAGIC_AT, magics)):
            if _has_own_offset(file, at + hit):
                yield file.file_from_offset + at + hit


def _has_own_offset(file: MappedFile, position: int) -> bool:
    head = HEAD.unpack_from(file.read_raw(position, HEAD.size))
    return head.phy_offset == file.file_from_offset + position


def data_behind(log: CommitLog, phy_offset: int) -> list[tuple[MappedFile, int, int]]:
    """Return the ranges after ``phy_offset`` that contain a byte other than zero.

    Each is a file and two positions in it: the first such byte and the end of the last one. Holes
    of sparse files are not read.
    """
    found: list[tuple[MappedFile, int, int]] = []
    for file in log.files:
        position = max(phy_offset - file.file_from_offset, 0)
        if position >= file.file_size:
            continue
        first, last = -1, -1
        try:
            spans = file.data_spans(position)
        except MagicCodeError:  # read-only: its writer has removed it meanwhile
            continue
        for start, end in spans:
            for at in range(start, end, _CHUNK):
                data = file.read_raw(at, min(_CHUNK, end - at))
                if data == _ZEROS[: len(data)]:  # forty times as fast as counting them
                    continue
                first = first if first >= 0 else at + len(data) - len(data.lstrip(b"\0"))
                last = at + len(data.rstrip(b"\0"))
        if first >= 0:
            found.append((file, first, last))
    return found


def valid_record_behind(log: CommitLog, phy_offset: int) -> int | None:
    """Return the start of the first valid record after ``phy_offset``, if there is one.

    A record is accepted only if it contains the phy offset at which it was found.
    """
    for file, _, last in data_behind(log, phy_offset):
        begin = max(phy_offset + 1 - file.file_from_offset, 0)
        for start in _heads(file, begin, last):
            if _is_record(file, start):
                return start
    return None


def last_on_disk(checkpoint: StoreCheckpoint, *, controlled: bool) -> int:
    """Return the start of a record that was on disk when the checkpoint was; 0 if unknown.

    Under a controller, a broker writes the end of what all in-sync replicas have instead, on disk
    or not.

    Source: RocketMQ ``CommitLog.recoverNormally``, ``AutoSwitchHAService.computeConfirmOffset``.
    """
    return 0 if controlled else checkpoint.fields.confirm_phy_offset


def was_on_disk(phy_offset: int, mark: SyncedMark, confirmed: int) -> bool:
    """Return whether a record that starts at ``phy_offset`` was certainly on disk once.

    ``confirmed``: from ``last_on_disk``. 0 proves nothing; a later record proves all before it.
    """
    return phy_offset < mark.phy_offset or (phy_offset <= confirmed and confirmed > 0)


def end_behind(log: CommitLog, phy_offset: int, rules: ScanRules) -> int:
    """Return the end of the last valid record after damage at ``phy_offset``, or ``phy_offset``."""
    end, at = phy_offset, valid_record_behind(log, phy_offset)
    while at is not None:
        try:
            for record in log.scan(at, rules=rules):
                end = record.phy_offset + record.size
        except CorruptionError as exc:
            at = valid_record_behind(log, max(end, exc.phy_offset or 0))
        else:
            break
    return end


def lacks_a_sector(log: CommitLog, phy_offset: int) -> bool:
    """Return whether the bytes of a record that should start there were lost by a power failure.

    Any page written since the last flush may be missing, also before others that exist. Such a page
    has its old bytes: zeros from the end of the log, or from its own start, to its end. Pages
    consist of sectors, and a disk may tear them between sectors.
    """
    file = log.files.find(phy_offset)
    if file is None:
        return False
    start, limit = phy_offset - file.file_from_offset, file.file_size
    size = int.from_bytes(file.read_raw(start, min(4, limit - start)), "big")
    end = start + (size if 0 < size <= limit - start else 1)
    bounds = [start, *range(start - start % _SECTOR + _SECTOR, end, _SECTOR)]
    return not all(any(file.read_raw(at, min(_SECTOR - at % _SECTOR, limit - at))) for at in bounds)


def whole_records(
    log: CommitLog, blocks: Iterable[RecordScan], unsynced_from: int = 0
) -> Iterator[RecordScan]:
    """Yield the records of a log after a crash, up to the first one that lost its end.

    The CRC covers only the body: a sector that is missing after it leaves zeros in topic or
    properties, in a record that looks valid. The same happens if a broker is killed while it copies
    a record into the log. Records before ``unsynced_from`` were certainly on disk.

    Raises:
        TruncatedRecordError: a record ends in, or has after its body, a sector of zeros; or the
            last one ends in zeros that no client sends.
    """
    refuse = partial(refuse_lost_end, log, unsynced_from=unsynced_from)
    for block in blocks:
        yield block.refusing(refuse)


def refuse_lost_end(log: CommitLog, record: ScannedRecord, unsynced_from: int = 0) -> None:
    """Refuse a record with a zero in topic or properties that has lost its end.

    Raises:
        TruncatedRecordError: see ``whole_records``.
    """
    file = log.files.find(record.phy_offset)
    if file is None:
        return
    end = record.phy_offset - file.file_from_offset + record.size
    topic_at = end - len(record.properties) - 2 - len(record.topic.encode())
    for at in range(topic_at - topic_at % -_SECTOR, end, _SECTOR):
        if not any(file.read_raw(at, min(_SECTOR, end - at))):
            raise TruncatedRecordError(
                "a part of the record was never written", path=file.path,
                phy_offset=record.phy_offset, position=at,
            )  # fmt: skip
    if record.phy_offset < unsynced_from or not _ends_in_zeros(record):
        return
    if valid_record_behind(log, record.phy_offset) is None:  # otherwise it was sent like that
        raise TruncatedRecordError(
            "the topic or properties of the last record end in zeros: it was not completely"
            " written",
            path=file.path, phy_offset=record.phy_offset, position=topic_at,
        )  # fmt: skip


def _ends_in_zeros(record: ScannedRecord) -> bool:
    """Return whether an interrupted copy into the log could have left this record.

    Properties end in a separator, or in a value with more than blanks and control characters; no
    broker accepts a topic with a NUL.
    """
    return record.properties.endswith(b"\0") or "\0" in record.topic


def _hits(data: bytes) -> list[int]:
    """Return the positions of magic codes in ``data``, in order."""
    hits: list[int] = []
    for magic in _MAGICS:
        at = data.find(magic)
        while at >= 0:
            hits.append(at)
            at = data.find(magic, at + 1)
    return sorted(hits)


def _is_record(file: MappedFile, start: int) -> bool:
    """Return whether a complete record with a valid checksum starts there."""
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
    """Bytes that were cut from the log, and the file in which they were saved."""

    phy_offset: int
    size: int
    path: Path


def _unused(folder: Path, name: str) -> Path:
    """Return a path for ``name``, numbered if it was saved before in the same second."""
    names = (f"{name}-{number}" if number else name for number in count())
    return next(path for path in map(folder.joinpath, names) if not exists(path))


def save_tail(log: CommitLog, phy_offset: int, folder: Path) -> list[SavedTail]:
    """Copy everything except zeros after ``phy_offset`` below ``folder``, durably.

    One file per commit log file, named by phy offset and time; it begins at ``phy_offset`` or at
    the start of the later log file.

    Raises:
        StoreIOError, DiskFullError: the bytes could not be saved; the log is unchanged.
    """
    spans = data_behind(log, phy_offset)
    firsts = [max(phy_offset - file.file_from_offset, 0) for file, *_ in spans]
    return [
        _save(file, first, last, folder)
        for (file, _, last), first in zip(spans, firsts, strict=True)
    ]


def save_record(log: CommitLog, phy_offset: int, size: int, folder: Path) -> SavedTail:
    """Copy ``size`` bytes of the log below ``folder``, durably, as ``save_tail`` does.

    Raises:
        CorruptionError: no file contains the bytes.
        StoreIOError, DiskFullError: the bytes could not be saved.
    """
    file = log.files.find(phy_offset)
    if file is None:
        raise TruncatedRecordError("no commit log file has this phy offset", phy_offset=phy_offset)
    first = phy_offset - file.file_from_offset
    return _save(file, first, first + size, folder)


def _save(file: MappedFile, first: int, last: int, folder: Path) -> SavedTail:
    """Copy bytes [``first``, ``last``) of a log file to a new file below ``folder``, durably."""
    start = file.file_from_offset + first
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    stamp = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{rest:09d}"
    with os_errors("save the bytes that are cut from the log", folder):
        make_folder(folder)
        path = _unused(folder, f"{file_name(start)}-{stamp}-{os.getpid()}")
        with path.open("xb") as out:
            for at in range(first, last, _CHUNK):
                out.write(file.read_raw(at, min(_CHUNK, last - at)))
            out.flush()
            os.fsync(out.fileno())
        sync_folder(folder)
    return SavedTail(start, last - first, path)


def has_lost_files(log: CommitLog, newest: int) -> bool:
    """Return whether records were dispatched from files that are not in any folder now.

    ``newest``: phy offset up to which a backend has dispatched records. A log in one folder cannot
    lose a file unless it is deleted, or a power failure undoes its creation.
    """
    return len(log.files.folders) > 1 and newest > log.files.end_offset()


def refuse_lost_files(log: CommitLog, newest: int, end: int) -> None:
    """Refuse to cut the log at ``end`` if ``has_lost_files``.

    Raises:
        RefusedStoreError: there are such files.
    """
    if has_lost_files(log, newest):
        raise RefusedStoreError(
            f"{newest_files_missing(log.files.end_offset(), newest)}. If the files are lost, run"
            f" cqstore recover --cut-at {end}",
            path=log.files.folder, phy_offset=end,
        )  # fmt: skip
