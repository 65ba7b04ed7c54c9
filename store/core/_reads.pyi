import mmap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol, Self, final

from store.files import Descriptor
from store.record.interpreted_message import PyMessageView
from store.service.dispatching.dispatch import Dispatcher
from store.service.results import PyGetMessageResult
from store.service.runtime.meters import GetMeter, HistogramSnapshot
from store.service.runtime.running_state import RunningState

class StoredMessage(PyMessageView): ...
class GetMessageResult(PyGetMessageResult): ...

class Histogram:
    def __new__(cls, bounds: Sequence[float] = ...) -> Self: ...
    def observe(self, seconds: float) -> None: ...
    def restore(self, before: HistogramSnapshot) -> None: ...
    def snapshot(self) -> HistogramSnapshot: ...

class _Log(Protocol):
    def readable(self, offset: int, /) -> tuple[int, object, int] | None: ...
    def min_phy_offset(self) -> int: ...
    def max_phy_offset(self) -> int: ...

def allow_bus_handler() -> None: ...

class PlainLog:
    def __init__(self, log: _Log) -> None: ...

@final
class BufferRef:
    def __new__(cls, owner: bytes | memoryview | mmap.mmap) -> Self: ...

@final
class StoreTimes:
    def __new__(cls, log: PlainLog, least: int) -> Self: ...

class _Queue(Protocol):
    def plain_units(
        self, queue_offset: int, max_count: int
    ) -> tuple[int, int, bytes, int] | None: ...

class Ready:
    def __init__(
        self,
        state: RunningState,
        dispatcher: Dispatcher,
        nothing: object,
        otherwise: Callable[[], None],
    ) -> None: ...
    def __call__(self) -> None: ...

class FastPull:
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

@final
class MapGuard:
    def __init__(
        self, map_: mmap.mmap, path: Path, descriptor: Descriptor, *, is_writable: bool
    ) -> None: ...
    @property
    def is_registered(self) -> bool: ...
    @property
    def has_faults(self) -> bool: ...
    @property
    def is_whole(self) -> bool: ...
    def can_read(self, position: int, size: int) -> bool: ...

def fault_count() -> object: ...
def bind_faults(read_record: Callable[[Path, Descriptor, int, int], bytes]) -> None: ...

class FileMap:
    def __init__(self, fd: int, size: int, owner: Descriptor | None = None) -> None: ...

def bind_messages(
    interpreted: type[PyMessageView],
    again: Callable[..., object],
    head: type,
    tail: type,
    host: type,
    decompress: Callable[..., bytes],
    message_id: Callable[..., str],
    described: Callable[..., str],
) -> None: ...
def bind_results(
    found: object, sound_messages: Callable[..., object], leave_out: Callable[..., object]
) -> None: ...
def bind_meters(
    histogram_snapshot: type[HistogramSnapshot], usual_bounds: tuple[float, ...]
) -> None: ...
def bind_statuses(
    too_small: object, overflow_one: object, overflow_badly: object, no_message: object
) -> None: ...
