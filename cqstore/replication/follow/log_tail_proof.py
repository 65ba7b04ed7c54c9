"""Finds the last bytes of a log that distinguish it from all other logs."""

import re

from cqstore.store.log.commit_log import CommitLog
from cqstore.store.record.invalid_record import MAGICS
from cqstore.store.record.record_layout import HEAD, PLACE

_MAGIC_AT = HEAD.offset("magic_code")
_MAGIC = re.compile(b"|".join(re.escape(magic.to_bytes(4, "big", signed=True)) for magic in MAGICS))


def tail_begin(log: CommitLog, min_bytes: int) -> int:
    """Return the start of the last ``min_bytes``, or of the last record if that is earlier.

    A blank record, or the end of a long body, may be equal in two logs. The header of a record
    contains its phy offset and its store time.
    """
    end, low = log.max_phy_offset(), max(log.min_phy_offset(), 0)
    if end <= low:
        return low
    # The last record is in the last file that has bytes: no file begins with its blank record.
    first, size = max(end - 1 - (end - 1) % log.files.file_size, low), min_bytes
    while (begin := max(end - size, first)) > first:
        head = _last_head(bytes(log.view(begin, end - begin)), begin)
        if head >= 0:
            return max(min(head, end - min_bytes), low)
        size *= 2
    return max(min(first, end - min_bytes), low)


def _last_head(data: bytes, phy_offset: int) -> int:
    """Return the start of the last record in ``data`` whose phy offset field is right, or -1."""
    found = -1
    for magic in _MAGIC.finditer(data):
        at = magic.start() - _MAGIC_AT
        is_whole = 0 <= at <= len(data) - HEAD.size
        if is_whole and PLACE.unpack_from(data, at)[2] == phy_offset + at:
            found = phy_offset + at
    return found
