from collections.abc import Sequence

from cqstore.store.core._column import Column
from cqstore.store.queue.units import QueueKey

def bind_queue_key(queue_key: type[QueueKey]) -> None: ...

class UnitColumns:
    queues: list[QueueKey]
    index_of: dict[tuple[str, int], int]
    queue_index: Column
    queue_offset: Column
    units: Column
    end_phy_offset: int
    def __len__(self) -> int: ...
    def add(
        self,
        key: tuple[str, int],
        queue_offset: int,
        phy_offset: int,
        size: int,
        tags_code: int,
        store_timestamp: int,
    ) -> None: ...
    def extend(self, other: UnitColumns) -> None: ...
    def following(self, next_offsets: list[int]) -> tuple[list[int], int]: ...
    def take(
        self,
        queues: Sequence[QueueKey],
        queue_index: bytes,
        queue_offset: bytes,
        units: bytes,
    ) -> None: ...
