from collections.abc import Callable

from cqstore.store.record.interpreted_message import PyMessageView

class StoredMessage(PyMessageView): ...

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
