from typing import Self

class WriteBatchColumns:
    def __new__(
        cls,
        prefixes: bytes,
        starts: object,
        prefix_index: object,
        queue_offset: object,
        units: object,
        delete_ranges: list[tuple[int, bytes, bytes]],
        deletes: list[tuple[int, bytes]],
        puts_family: int,
        puts: list[tuple[bytes, bytes]],
    ) -> Self: ...

class BatchMemory: ...
