"""Delay levels: what units of ``SCHEDULE_TOPIC_XXXX`` contain in place of a tag's hash.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``,
``DefaultMessageStore.computeDeliverTimestamp``,
``ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeUp``.
"""

from cqstore.store.errors import StoreConfigError
from cqstore.store.queue.context import LogView

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIGN = 1 << 63
_MAX_DIGITS = 12
"""Of the number of a level: thirty thousand years in seconds."""


class DelayLevels:
    """The table of ``messageDelayLevel``, counted from 1."""

    def __init__(self, text: str) -> None:
        """Parse ``text``, for example ``1s 5s 2h``.

        Raises:
            StoreConfigError: a level is not a number with s, m, h or d.
        """
        self._delays_ms: list[int] = []
        for level in text.split():
            number, unit = level[:-1], _UNIT_MS.get(level[-1])
            if unit is None or not number.isdecimal() or len(number) > _MAX_DIGITS:
                raise StoreConfigError(f"messageDelayLevel: {level!r} is no time such as 30m")
            self._delays_ms.append(int(number) * unit)

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Return the delay of each level, ms, the first one's first."""
        return tuple(self._delays_ms)

    @property
    def max_level(self) -> int:
        """Return the highest level."""
        return len(self._delays_ms)

    def tags_code(self, delay: str, store_timestamp: int, tags_code: int) -> int:
        """Return when a message of level ``delay`` is due, ms; ``tags_code`` for no level."""
        try:
            level = min(int(delay), self.max_level)
        except ValueError:
            return tags_code
        if level <= 0:
            return tags_code
        due = store_timestamp + self._delays_ms[level - 1]
        return (due + _SIGN) % (2 * _SIGN) - _SIGN  # a damaged time may pass Java's long: it wraps


def deliver_time(
    tags_code: int | None, delay_ms: int, log: LogView, phy_offset: int, size: int
) -> int:
    """Return when the message of a unit of ``SCHEDULE_TOPIC_XXXX`` is due, ms.

    The unit's tags code is that time. ``None``: it lay beside the queue and is lost there. Then it
    is ``delay_ms``, the level's delay, after the record was stored.
    """
    if tags_code is not None:
        return tags_code
    return log.store_timestamp(phy_offset, size) + delay_ms
