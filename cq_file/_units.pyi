from typing import Protocol

from cqstore.cq_file._table import OpenFile, SimpleQueues
from cqstore.store.queue.context import LogView

class _Opened(Protocol):
    @property
    def read_only(self) -> bool: ...
    @property
    def entries(self) -> dict[str, OpenFile]: ...
    def get(self, path: str, /) -> OpenFile: ...

class FileUnits:
    def __init__(
        self, log: LogView, opened: _Opened, file_size: int, *, max_units: int
    ) -> None: ...
    def fast_units(
        self, table: SimpleQueues, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...
    def search(
        self, table: SimpleQueues, topic: str, queue_id: int, timestamp: int, upper: bool
    ) -> int | None: ...
