import mmap
from typing import Self, final

@final
class BufferRef:
    def __new__(cls, owner: bytes | memoryview | mmap.mmap) -> Self: ...
