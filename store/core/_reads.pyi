from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from store.index.index_file import IndexFile
from store.record.interpreted_message import InterpretedMessage
from store.service.results import InterpretedResult
from store.service.running.meters import GetMeter, HistogramSnapshot, InterpretedHistogram

class StoredMessage(InterpretedMessage): ...
class GetMessageResult(InterpretedResult): ...

class Histogram(InterpretedHistogram):
    def __init__(self, bounds: Sequence[float] = ...) -> None: ...

class _Log(Protocol):
    def readable(self, offset: int, /) -> tuple[int, object, int] | None: ...
    def min_phy_offset(self) -> int: ...
    def max_phy_offset(self) -> int: ...

class PlainLog:
    def __init__(self, log: _Log) -> None: ...

class _Queue(Protocol):
    def plain_units(
        self, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...

class PlainPulls:
    found: int
    messages: int
    total_bytes: int
    def __init__(
        self,
        log: _Log,
        meter: GetMeter,
        most_bytes: int,
        most_count: int,
        in_memory: int,
        filtered: int,
        per_file: int,
    ) -> None: ...
    def get(
        self, queue: _Queue, offset: int, max_msgs: int, max_total_bytes: int
    ) -> GetMessageResult | None: ...

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

F = TypeVar("F", bound=_Files)

class _Table(Protocol[F]):
    simple: dict[str, dict[int, F]]
    closed: bool

class _Opened(Protocol):
    @property
    def entries(self) -> Mapping[str, _File]: ...
    def get(self, path: str, /) -> _File: ...

class FileUnits:
    def __init__(
        self, log: _Log, opened: _Opened, file_size: int, classes: tuple[type, type]
    ) -> None: ...
    def plain_units(
        self, table: _Table[F], topic: str, queue_id: int, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...
    def search(
        self, table: _Table[F], topic: str, queue_id: int, timestamp: int, upper: bool
    ) -> int | None: ...

class PlainFilter:
    def __init__(self, codes: Iterable[int] | None) -> None: ...
    def estimate(
        self,
        queue: _Queue,
        start: int,
        end: int,
        per_file: int,
        max_scan: int,
        most_matches: int,
    ) -> int | None: ...

def walk_chain(
    before: list[int],
    fd: int,
    slots: int,
    entries: int,
    wanted: int,
    most: int,
    begin: int,
    end: int,
    began: int,
    drained: int,
    read_only: bool,
) -> list[int] | None: ...
def query_files(
    files: tuple[IndexFile, ...], topic: str, key: str, max_num: int, begin: int, end: int
) -> list[int] | None: ...
def messages_with_key(
    log: PlainLog, file_size: int, phy_offsets: Iterable[int], topic: str, key: str
) -> list[StoredMessage] | None: ...
def bind_messages(*parts: Callable[..., object]) -> None: ...
def bind_results(found: object, *parts: Callable[..., object]) -> None: ...
def bind_meters(
    histogram_snapshot: type[HistogramSnapshot], usual_bounds: tuple[float, ...]
) -> None: ...
def bind_statuses(
    too_small: object, overflow_one: object, overflow_badly: object, no_message: object
) -> None: ...
