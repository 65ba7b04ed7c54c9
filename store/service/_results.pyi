from collections.abc import Callable

from cqstore.store.service.results import PyGetMessageResult

class GetMessageResult(PyGetMessageResult): ...

def bind_results(
    sound_messages: Callable[..., object], leave_out: Callable[..., object]
) -> None: ...
