from collections.abc import Iterable
from typing import Protocol

class _Queue(Protocol):
    def fast_units(
        self, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...

class FastFilter:
    def __init__(self, codes: Iterable[int] | None) -> None: ...
    def estimate(
        self,
        queue: _Queue,
        start: int,
        end: int,
        per_file: int,
        max_scan: int,
        max_matches: int,
    ) -> int | None: ...
