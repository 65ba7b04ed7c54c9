"""TailTopics: counts the records that a ``ForeignLogTail`` finds by topic, in bounded memory."""

from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from cqstore.store.record.message import SysFlag
from cqstore.store.record.record_layout import HEAD, MAGIC_V2, body_position

MAX_TOPICS = 4096
OTHERS = "(others)"
"""The name for all topics or groups without a row of their own; no topic can have it."""
_HEAD_BYTES = body_position(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
"""Bytes up to the body of any record."""
_INT = Struct(">i")
_MAGIC_AT, _SYS_FLAG_AT = HEAD.offset("magic_code"), HEAD.offset("sys_flag")

Read = Callable[[int, int], bytes]
"""Reads a number of bytes at a position of a record."""


class TopicTraffic(NamedTuple):
    """Number of records that arrived, and their bytes."""

    records: int = 0
    bytes: int = 0


class TailTopics:
    """Counts records by topic until ``take`` is called. One thread."""

    def __init__(self, max_topics: int = MAX_TOPICS) -> None:
        """``max_topics``: number of topics counted separately between two calls of ``take``."""
        self._max_topics = max_topics
        self._traffic: dict[bytes, list[int]] = {}
        self._others = [0, 0]

    def take(self) -> dict[str, TopicTraffic]:
        """Return the counts of each topic since the last call; other topics are in ``OTHERS``."""
        traffic, self._traffic = self._traffic, {}
        others, self._others = self._others, [0, 0]
        found = {
            name.decode(errors="replace"): TopicTraffic(*sums) for name, sums in traffic.items()
        }
        return found | ({OTHERS: TopicTraffic(*others)} if others[0] else {})

    def passed(self, size: int, read: Read) -> None:
        """Count a record of ``size`` bytes; ``read`` reads its bytes."""
        name = _topic(size, read)
        sums = self._traffic.get(name)
        if sums is None:
            sums = self._others
            if len(self._traffic) < self._max_topics:
                sums = self._traffic[name] = [0, 0]
        sums[0] += 1
        sums[1] += size


def _topic(size: int, read: Read) -> bytes:
    """Return the topic of a record; empty if its sizes do not fit the record."""
    head = read(0, min(_HEAD_BYTES, size))
    body = body_position(_INT.unpack_from(head, _SYS_FLAG_AT)[0])
    if body > len(head):
        return b""
    body_size: int = _INT.unpack_from(head, body - _INT.size)[0]
    length_at = body + body_size
    begin = length_at + (2 if _INT.unpack_from(head, _MAGIC_AT)[0] == MAGIC_V2 else 1)
    if not body <= length_at < begin <= size:
        return b""
    length = int.from_bytes(read(length_at, begin - length_at), "big")
    return read(begin, min(length, size - begin))
