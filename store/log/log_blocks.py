"""log_blocks: the checked records of a log, in blocks: the records of one read each."""

from collections.abc import Iterator

from cqstore.store.errors import MagicCodeError
from cqstore.store.log.mapped_file_queue import MappedFileQueue
from cqstore.store.record.decoder import record_span
from cqstore.store.record.record_layout import BLANK_SIZE
from cqstore.store.record.scan import RecordScan, ScanRules, TopicCache, scan_block

_SCAN_BYTES = 1 << 20


def log_blocks(
    files: MappedFileQueue,
    start: int,
    end: int,
    rules: ScanRules,
    topics: TopicCache,
    blanks: list[tuple[int, int]] | None,
) -> Iterator[RecordScan]:
    """Yield the records that start in [start, end), see ``CommitLog.scan_blocks``.

    Iterate over each block to its end before the next one.

    Raises:
        CorruptionError: no valid record where one should start; iterating over a block raises it
            too.
    """
    at = start
    while at < end:
        file = files.find(at)
        if file is None:
            raise MagicCodeError("no commit log file contains this offset", phy_offset=at)
        position = at - file.file_from_offset
        left = files.file_size - position
        there = min(left, end - at, file.readable_position - position)
        data = file.read(position, min(there, _SCAN_BYTES))
        scan = scan_block(data, at, left, rules, topics)
        yield scan
        if scan.behind > at:
            at = scan.behind
            continue
        # A blank record, a record larger than a block, or no record.
        if left < BLANK_SIZE:
            raise MagicCodeError("the file ends without a blank record", phy_offset=at)
        size = record_span(file.read(position, BLANK_SIZE), 0, left, at)
        if size:
            yield scan_block(file.read(position, size), at, left, rules, topics)
        elif blanks is not None:
            blanks.append((at, left))
        at += size or left
