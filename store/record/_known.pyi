from typing import Self

class InternTable:
    def __new__(cls, queue_key: type[tuple[str, int]], tags_prefix: str) -> Self: ...
