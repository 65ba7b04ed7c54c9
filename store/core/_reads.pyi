from collections.abc import Callable

from store.record.interpreted_message import InterpretedMessage
from store.service.results import InterpretedResult

class StoredMessage(InterpretedMessage): ...
class GetMessageResult(InterpretedResult): ...

class Sweep:
    def __init__(
        self,
        readable: Callable[[int], tuple[int, object, int] | None],
        most_bytes: int,
        most_count: int,
        in_memory: int,
    ) -> None: ...
    def take(
        self,
        result: GetMessageResult,
        data: bytes,
        stride: int,
        first: int,
        most_messages: int,
        most_bytes: int,
        log_end: int,
    ) -> bool: ...

def bind_messages(*parts: Callable[..., object]) -> None: ...
def bind_results(found: object, *parts: Callable[..., object]) -> None: ...
