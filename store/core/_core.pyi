from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import Field
from types import ModuleType
from typing import Any, Generic, Literal, Self, TypeVar

from store.index.index_batch import IndexBatch
from store.log._tail import LogTail
from store.queue.units import UnitBatch
from store.record.message import Message
from store.record.scan import ScannedRecord
from store.service.dispatching._waiting import InFlight, Waiting
from store.service.results import PutMessageResult, PutMessageStatus
from store.service.runtime._flags import StateFlags

_T = TypeVar("_T")

def java_hash(text: str) -> int: ...
def crc32(data: bytes, *, folded: bool = True) -> int: ...
def bring_in(target: object, start: int, end: int) -> bool: ...

class HostWire:
    wire: bytes

def bind_message(loopback: HostWire, fields: Mapping[str, Field[Any]]) -> None: ...

class PropertyNames(Generic[_T]):
    def __init__(self, names: Sequence[str], made: type[_T]) -> None: ...
    def decode(self, data: bytes) -> _T: ...
    def encode(self, properties: dict[str, str]) -> tuple[bytes, _T] | None: ...

class BlockScan:
    behind: int
    def __init__(self, *parts: object) -> None: ...
    def __iter__(self) -> Iterator[ScannedRecord]: ...
    def __next__(self) -> ScannedRecord: ...
    def refusing(self, look: Callable[[ScannedRecord], object]) -> BlockScan: ...

class FastPut:
    def __init__(
        self,
        *,
        log: LogTail,
        pending: Waiting,
        state: StateFlags,
        dispatcher: InFlight,
        clock: ModuleType,
        topics: Mapping[str, object],
        scheduled: str,
        timer: str,
        classes: tuple[type[HostWire], type, type[PutMessageResult]],
        ok: PutMessageStatus,
        tags_prefix: str,
        max_body: int,
        file_size: int,
        keys_wanted: bool,
        tags_wanted: bool,
        alone: bool,
        every: int,
        fault_count: object,
        seal: bytes | None,
        refuses_delay: bool,
        has_light: bool,
        delays: Callable[[str, int, int], int],
    ) -> None: ...
    def quick(self, message: Message) -> PutMessageResult | Literal[False] | None: ...
    def one(self, message: Message) -> PutMessageResult | None: ...
    def several(self, messages: Iterable[Message]) -> list[PutMessageResult] | None: ...
    def batch(self, batch: Message) -> list[PutMessageResult] | None: ...
    def encoded(self) -> EncodedMessages: ...

class EncodedMessages:
    def __new__(cls, puts: FastPut) -> Self: ...
    def __len__(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def next_bytes(self) -> int: ...
    def add(
        self, message: Message, learnt: tuple[int, bytes, str], store_host: object = None
    ) -> bool: ...
    def skip(self, count: int) -> None: ...
    def sum(self) -> None: ...
    def unassigned(self) -> list[tuple[str, int]]: ...
    def append(self, target: object, results: list[PutMessageResult]) -> None: ...

class ReplayBatcher:
    def __init__(
        self,
        *,
        note: Callable[..., object],
        deleted: Sized,
        scheduled: str,
        tags_prefix: str,
        keys_wanted: bool,
        tags_wanted: bool,
    ) -> None: ...
    def fill(
        self,
        blocks: Iterator[Any],
        result: object,
        units: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
        full_at: int,
    ) -> bool: ...
