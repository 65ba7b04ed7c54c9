from typing import Self

from cqstore.cq_file._units import FileUnits
from cqstore.cq_file.batch_queue import BatchConsumeQueue
from cqstore.cq_file.consume_queue import FileConsumeQueue
from cqstore.cq_file.queue_files import FileAccess
from cqstore.store.core._maps import FileMap
from cqstore.store.queue.consume_queue import FastUnits

class OpenFile:
    def __new__(cls, number: int, path: str) -> Self: ...
    @property
    def number(self) -> int: ...
    @property
    def path(self) -> str: ...
    used: bool
    reads: int
    mapped: FileMap | None

class FileRow:
    access: FileAccess
    topic: str
    queue_id: int
    starts: list[int]
    generation: int

class QueueEnds(FileRow):
    first_offset: int
    max_offset: int
    last_phy: int
    end_phy: int
    _unproven: bool
    _tail_path: str | None
    _tail_position: int
    known_min: tuple[int, int, int]
    known_path: tuple[int, str]

class SimpleQueues:
    closed: bool
    simple: dict[str, dict[int, FileConsumeQueue]]
    fast: FileUnits | None
    def find(self, topic: str, queue_id: int) -> FileConsumeQueue | BatchConsumeQueue | None: ...
    def fast_units(
        self, topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> FastUnits | None: ...
    def search(self, topic: str, queue_id: int, timestamp: int, upper: bool) -> int | None: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
