from collections.abc import Iterable, Iterator, Sequence

from store.queue.units import QueueKey

def bind_queue_key(queue_key: type[QueueKey]) -> None: ...

class Column:
    item_bytes: int
    def __init__(self, item_bytes: int) -> None: ...
    def extend(self, data: bytes | bytearray | memoryview) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, row: int, /) -> int: ...
    def __iter__(self) -> Iterator[int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

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
    def add_list(
        self,
        keys: Iterable[tuple[str, int]],
        queue_offsets: Iterable[int],
        phy_offsets: Iterable[int],
        sizes: Iterable[int],
        tags_codes: Iterable[int],
        store_timestamps: Iterable[int],
    ) -> None: ...
    def take(
        self,
        queues: Sequence[QueueKey],
        queue_index: bytes,
        queue_offset: bytes,
        units: bytes,
    ) -> None: ...
