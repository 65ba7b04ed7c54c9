from collections.abc import Callable, Iterable, Mapping
from typing import Literal

from cqstore.store.log._tail import LogTail
from cqstore.store.queue.units import QueueKey
from cqstore.store.record._encode import FastEncoder
from cqstore.store.record._host import HostWire
from cqstore.store.record.message import Message
from cqstore.store.service.dispatching._waiting import InFlight, Waiting
from cqstore.store.service.results import PutMessageResult, PutMessageStatus
from cqstore.store.service.runtime._flags import StateFlags
from cqstore.store.service.writing._encoded import EncodedMessages

class FastPut(FastEncoder):
    def __init__(
        self,
        *,
        log: LogTail,
        pending: Waiting,
        state: StateFlags,
        dispatcher: InFlight,
        topics: Mapping[str, object],
        scheduled: str,
        classes: tuple[type[HostWire], type, type[PutMessageResult], type[QueueKey]],
        encoded: Callable[[FastPut], EncodedMessages],
        ok: PutMessageStatus,
        tags_prefix: str,
        max_body: int,
        file_size: int,
        keys_wanted: bool,
        tags_wanted: bool,
        alone: bool,
        every: int,
        seal: bytes | None,
        reads_delay: bool,
        delays: Callable[[str, int, int], int],
    ) -> None: ...
    def quick(self, message: Message) -> PutMessageResult | Literal[False] | None: ...
    def one(self, message: Message) -> PutMessageResult | None: ...
    def several(self, messages: Iterable[Message]) -> list[PutMessageResult] | None: ...
    def batch(self, batch: Message) -> list[PutMessageResult] | None: ...
    def encoded(self) -> EncodedMessages: ...
