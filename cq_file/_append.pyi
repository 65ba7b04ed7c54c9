from collections.abc import Callable, Collection, Mapping, Sequence

from cq_file._table import OpenFile
from cq_file.consume_queue import FileConsumeQueue
from store.queue.units import QueueKey, UnitBatch

class FileAppends:
    def __init__(
        self,
        *,
        topics: Mapping[str, Mapping[int, FileConsumeQueue]],
        files: Mapping[str, OpenFile],
        used: Callable[[str], None],
        note: Callable[[Sequence[str], Sequence[int]], None],
        file_size: int,
        most_offset: int,
    ) -> None: ...
    def append(self, batch: UnitBatch, held_back: Collection[QueueKey]) -> bytearray: ...
