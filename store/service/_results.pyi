from collections.abc import Callable, Iterable

from cqstore.store.record.interpreted_message import PyMessageView
from cqstore.store.service.results import PyGetMessageResult

class GetMessageResult(PyGetMessageResult): ...

class QueryMessageResult(list[PyMessageView]):
    has_more: bool
    def __init__(
        self, messages: Iterable[PyMessageView] = (), *, has_more: bool = False
    ) -> None: ...

def bind_results(
    sound_messages: Callable[..., object], leave_out: Callable[..., object]
) -> None: ...
