from collections.abc import Callable
from typing import final

def search_offset(
    min_offset: int,
    max_offset: int,
    timestamp: int,
    upper: bool,
    timestamp_at: Callable[[int], int],
) -> int: ...

@final
class SampledTimes: ...
