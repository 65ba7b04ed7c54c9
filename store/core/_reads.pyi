from collections.abc import Callable

from store.record.interpreted_message import InterpretedMessage

class StoredMessage(InterpretedMessage): ...

def bind_messages(*parts: Callable[..., object]) -> None: ...
