"""The new part of each log: from the end of the archived part to the end of the log."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from cqstore.analysis.log_table import LogPart, joined
from cqstore.analysis.options import SourceOptions
from cqstore.cli.message_files.archive_manifest import ArchivedSource
from cqstore.store.errors import RefusedStoreError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.service.opening.components import components_of

_HEAD_BYTES, _TAIL_BYTES = 1 << 12, 1 << 16


@dataclass(frozen=True, slots=True)
class LogRange:
    """Range of one log to archive. Small, can be pickled."""

    source: str
    options: SourceOptions
    begin: int
    """Phy offsets, like ``end``."""
    end: int
    mark: str
    """Digest of the log before ``end``, see ``log_mark``."""
    lost_bytes: int
    """Bytes before ``begin`` that were deleted before any run read them."""
    parts: Sequence[LogPart]
    """Ranges of the tasks: runs of whole files, except at both ends."""


def plan_range(
    source: str, options: SourceOptions, before: ArchivedSource | None
) -> LogRange:  # fmt: skip
    """Return the range of the log in ``options`` that is not in ``before``, its last batch.

    Raises:
        RefusedStoreError: it is not the log that was archived under this name.
        StoreError: the log cannot be read.
    """
    with options.open_store() as store:
        log = components_of(store).log
        low, end = max(log.min_phy_offset(), 0), log.max_phy_offset()
        begin = low
        if before is not None:
            _check_goes_on(log, before, options, low, end)
            begin = max(low, before.end)
        size = log.files.file_size
        starts = [file.file_from_offset for file in log.files.files()]
        spans = [LogPart(max(start, begin), min(start + size, end)) for start in starts]
        spans = [span for span in spans if span.start < span.end]
        lost = 0 if before is None else begin - before.end
        parts = joined(spans, [True] * len(spans), options.partition_bytes)
        return LogRange(source, options, begin, end, log_mark(log, end), lost, parts)


def log_mark(log: CommitLog, end: int) -> str:
    """Return a digest of the first and the last bytes of the log file before ``end``.

    Records contain their own offset and time and never change, so two logs with the same mark at
    the same phy offset are the same log. Empty if there is no file before ``end``.
    """
    file = log.files.find(end - 1) if end else None
    if file is None:
        return ""
    size = end - file.file_from_offset
    tail = max(size - _TAIL_BYTES, 0)
    digest = hashlib.sha256(file.read(0, min(size, _HEAD_BYTES)))
    digest.update(file.read(tail, size - tail))
    return digest.hexdigest()


def _check_goes_on(
    log: CommitLog, before: ArchivedSource, options: SourceOptions, low: int, end: int
) -> None:
    """Refuse a log that differs from the archived one.

    If all archived records have expired, there is nothing to compare.
    """
    way = "archive a different log with another --source"
    if before.end > end:
        raise RefusedStoreError(
            f"{before.name} was archived up to phy offset {before.end}, but this log ends at {end}:"
            f" it was truncated, or it is not the same log; {way}", path=options.path,
        )  # fmt: skip
    if before.end > low and log_mark(log, before.end) != before.mark:
        raise RefusedStoreError(
            f"{before.name} was archived up to phy offset {before.end}, but this log has different"
            f" records before it; {way}", path=options.path, phy_offset=before.end,
        )  # fmt: skip
