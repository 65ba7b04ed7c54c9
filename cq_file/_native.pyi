from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from store.queue.context import LogView
from store.queue.units import QueueKey, UnitBatch

class _File(Protocol):
    @property
    def number(self) -> int: ...

class _Files(Protocol):
    starts: list[int]
    generation: int
    first_offset: int
    max_offset: int
    known_min: tuple[int, int, int]
    known_path: tuple[int, str]
    def path_of(self, start: int) -> str: ...

_F = TypeVar("_F", bound=_Files)

class _Table(Protocol[_F]):
    simple: dict[str, dict[int, _F]]
    closed: bool

class _Opened(Protocol):
    @property
    def entries(self) -> Mapping[str, _File]: ...
    def get(self, path: str, /) -> _File: ...

class FileAppends:
    def __init__(
        self,
        *,
        topics: Mapping[str, Mapping[int, _Files]],
        files: Mapping[str, _File],
        used: Callable[[str], None],
        note: Callable[[Sequence[str], Sequence[int]], None],
        classes: tuple[type, type],
        file_size: int,
        most_offset: int,
    ) -> None: ...
    def append(self, batch: UnitBatch, held_back: Collection[QueueKey]) -> bytearray: ...

class FileUnits:
    def __init__(
        self,
        log: LogView,
        opened: _Opened,
        file_size: int,
        *,
        classes: tuple[type, type, type],
        most_offset: int,
    ) -> None: ...
    def plain_units(
        self, table: _Table[_F], topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...
    def search(
        self, table: _Table[_F], topic: str, queue_id: int, timestamp: int, upper: bool
    ) -> int | None: ...
