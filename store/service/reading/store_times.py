"""Store times as a program gives them."""

from datetime import UTC, datetime

from cqstore.store.errors import RefusedStoreError

Time = int | datetime
"""ms since the epoch, or a ``datetime`` (UTC if it has no zone)."""


def time_ms(time: Time) -> int:
    """Return ``time`` in ms since the epoch.

    Raises:
        RefusedStoreError: it is neither of the two.
    """
    if isinstance(time, datetime):
        return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if type(time) is not int:
        raise RefusedStoreError(f"{time!r} is no time: ms since the epoch, or a datetime")
    return time
