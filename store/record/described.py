"""The ``repr`` of a stored message: one line, also for damaged records."""

from typing import TYPE_CHECKING

from cqstore.store.errors import StoreError

if TYPE_CHECKING:
    from cqstore.store.record._stored import StoredMessage

_FIELDS = (
    "topic", "queue_id", "queue_offset", "phy_offset", "size", "store_timestamp", "body",
    "properties",
)  # fmt: skip


def described(message: "StoredMessage") -> str:
    """Return position and fields of a message in one line; of the body only its size. Never raises.

    A field that cannot be read, because the record is damaged or the log was truncated, is shown
    with the error.
    """
    return f"StoredMessage({', '.join(f'{name}={_field(message, name)}' for name in _FIELDS)})"


def _field(message: "StoredMessage", name: str) -> str:
    try:
        if name == "body":
            return f"<{message.tail.body_size} bytes stored>"
        return repr(getattr(message, name))
    except StoreError as exc:
        return f"<{exc.reason}>"
