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
    """Bytes of one log that are to be archived. Small, and can be pickled."""

    source: str
    options: SourceOptions
    begin: int
    """Phy offset; so is ``end``."""
    end: int
    mark: str
    """Of the log before ``end``, see ``log_mark``."""
    lost_bytes: int
    """Bytes before ``begin`` that were deleted before any run read them."""
    parts: Sequence[LogPart]
    """Tasks: runs of whole files, but for the two ends."""


def plan_range(
    source: str, options: SourceOptions, before: ArchivedSource | None
) -> LogRange:  # fmt: skip
    """Return what the log in ``options`` has behind that of ``before``, its last batch.

    Raises:
        RefusedStoreError: it is another log than the one that was archived under this name.
        StoreError: it cannot be read.
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
    """Return a digest of the file before ``end``: of its first bytes and of the last ones.

    Records hold their own place and time, and none changes any more: two logs that have one mark
    at one phy offset are one log. Empty where no file is before ``end``.
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
    """Refuse a log of which the archive has something else.

    Where all that was archived has expired since, nothing is left to compare.
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
