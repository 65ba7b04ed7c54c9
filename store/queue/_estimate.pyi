from collections.abc import Callable, Iterable
from typing import Protocol

from cqstore.store.queue.units import CqUnit

class _Queue(Protocol):
    def fast_units(
        self, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...

def estimate(
    units: Iterable[CqUnit],
    start: int,
    end: int,
    matches: Callable[[int | None], bool],
    max_scan: int,
    max_matches: int,
) -> int: ...

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
