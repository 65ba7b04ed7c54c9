from collections.abc import Callable, Collection, Mapping

from cqstore.cq_file._table import OpenFile
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.store.queue.units import QueueKey, UnitBatch

class FileAppends:
    def __init__(
        self,
        *,
        topics: Mapping[str, Mapping[int, FileConsumeQueue]],
        files: Mapping[str, OpenFile],
        note: Callable[[list[str], list[int]], None],
        file_size: int,
        max_units: int,
    ) -> None: ...
    def append(self, batch: UnitBatch, held_back: Collection[QueueKey]) -> bytearray: ...

def have_topics(topics: Mapping[str, object], keys: list[QueueKey]) -> bool: ...
def add_sizes(sizes: dict[str, int], names: list[str], more: list[int]) -> None: ...
