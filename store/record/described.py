"""What ``repr`` says of a stored message: a line, whatever the record is like."""

from typing import Protocol

from cqstore.store.errors import StoreError
from cqstore.store.record.record_layout import RecordTail

_FIELDS = (
    "topic", "queue_id", "queue_offset", "phy_offset", "size", "store_timestamp", "body",
    "properties",
)  # fmt: skip


class _Stored(Protocol):
    """An object that has the tail of its record."""

    @property
    def tail(self) -> RecordTail: ...


def described(message: _Stored) -> str:
    """Return where a message lies and what it is; its body by size alone. Raises nothing.

    A field that cannot be read, in a damaged record or where the log was cut, says so.
    """
    return f"StoredMessage({', '.join(f'{name}={_field(message, name)}' for name in _FIELDS)})"


def _field(message: _Stored, name: str) -> str:
    try:
        if name == "body":
            return f"<{message.tail.body_size} bytes stored>"
        return repr(getattr(message, name))
    except StoreError as exc:
        return f"<{exc.reason}>"
