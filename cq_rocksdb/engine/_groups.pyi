from typing import Self

class QueueGroups:
    is_fast: bool
    queues: int
    queue_index: memoryview
    queue_offset: memoryview
    units: memoryview
    def __new__(
        cls,
        queues: object,
        queue_index: object,
        queue_offset: object,
        units: object,
        max_offset: int,
        max_topic: int,
        reserved: bytes,
    ) -> Self: ...
