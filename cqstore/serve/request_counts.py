"""RequestCounts: number of requests by code and result."""

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


class RequestCounts:
    """Counts the requests of a server. One thread; unknown codes take bounded memory."""

    def __init__(self) -> None:
        self._counts = Counter[tuple[str, int]]()

    def add(self, code: int, response: int) -> None:
        """Count one request."""
        key = request_name(code), response
        if key not in self._counts and len(self._counts) >= _MAX_CODES:
            key = _OTHERS, response
        self._counts[key] += 1

    def snapshot(self) -> Iterator[CodeCount]:
        """Yield the counts, the most frequent first."""
        for (request, response), count in self._counts.most_common():
            yield CodeCount(request, response, count)
