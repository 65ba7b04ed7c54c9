"""RequestCounts: number of requests and size of responses, by code and result."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from cqstore.serve.codes import request_name

_MAX_CODES = 256
_OTHERS = "others"


class CodeCount(NamedTuple):
    """Number of requests of one code that had one result."""

    request: str
    """RocketMQ's name of the request; unknown codes are numbers, or ``others``."""
    response: int
    """Response code; -1: no response was requested."""
    total: int
    bytes: int
    """Size of the responses."""


class RequestCounts:
    """Counts the requests of a server; unknown codes take bounded memory.

    One thread adds, any thread may read.
    """

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, int]]()
        self._bytes = Counter[tuple[str, int]]()

    def add(self, code: int, response: int, size: int) -> None:
        """Count one request, and the ``size`` of its response in bytes."""
        key = request_name(code), response
        if key not in self._counts and len(self._counts) >= _MAX_CODES:
            key = _OTHERS, response
        self._counts[key] += 1
        self._bytes[key] += size

    def snapshot(self) -> Iterator[CodeCount]:
        """Yield the counts, the most frequent first."""
        for key, count in self._counts.most_common():
            yield CodeCount(*key, count, self._bytes[key])
