"""What ``repr`` says of a stored message: a line, whatever the record is like."""

from typing import TYPE_CHECKING

from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.record.decoder import StoredMessage


def described(message: "StoredMessage") -> str:
    """Return where a message lies and what it is; its body by size alone. Raises nothing.

    A field that cannot be read, in a damaged record or where the log was cut, says so.
    """
    fields: dict[str, Callable[[], object]] = {
        "topic": lambda: repr(message.topic),
        "queue_id": lambda: message.queue_id,
        "queue_offset": lambda: message.queue_offset,
        "phy_offset": lambda: message.phy_offset,
        "size": lambda: message.size,
        "store_timestamp": lambda: message.store_timestamp,
        "body": lambda: f"<{message.tail.body_size} bytes stored>",
        "properties": lambda: message.properties,
    }
    parts = []
    for name, read in fields.items():
        try:
            parts.append(f"{name}={read()}")
        except StoreError as exc:
            parts.append(f"{name}=<{exc.reason}>")
    return f"StoredMessage({', '.join(parts)})"
