"""Delay levels: units of ``SCHEDULE_TOPIC_XXXX`` contain a due time in place of a tag's hash.

Source: RocketMQ ``CommitLog.checkMessageAndReturnSize``,
``DefaultMessageStore.computeDeliverTimestamp``,
``ScheduleMessageService.DeliverDelayedMessageTimerTask.executeOnTimeUp``.
"""

from cqstore.store.errors import StoreConfigError
from cqstore.store.queue.context import LogView
from cqstore.store.record.properties import level_of

_UNIT_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIGN = 1 << 63
_MAX_DIGITS = 12
"""Digits of the number of a level: enough for thirty thousand years in seconds."""


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
                raise StoreConfigError(
                    f"messageDelayLevel: invalid delay {level!r}: expected a number followed by s,"
                    " m, h or d, such as 30m"
                )
            self._delays_ms.append(int(number) * unit)

    @property
    def delays_ms(self) -> tuple[int, ...]:
        """Return the delay of each level, ms, in order."""
        return tuple(self._delays_ms)

    @property
    def max_level(self) -> int:
        """Return the highest level."""
        return len(self._delays_ms)

    def tags_code(self, delay: str, store_timestamp: int, tags_code: int) -> int:
        """Return the due time, ms, of a message of level ``delay``; ``tags_code`` without one."""
        level = min(level_of(delay) or 0, self.max_level)
        if level <= 0:
            return tags_code
        due = store_timestamp + self._delays_ms[level - 1]
        return (due + _SIGN) % (2 * _SIGN) - _SIGN  # a damaged time may pass Java's long: it wraps


class FoundLevels:
    """Delays of levels found from units, if no settings define a broker's levels.

    If all units of a level contradict the default in the same way, it is a level of the broker; if
    only one unit among others differs, it is not.
    """

    def __init__(self, levels: DelayLevels) -> None:
        self._levels = levels
        self._usual = set[str]()  # levels with a unit that agrees with ``levels``
        self.delays_ms: dict[str, int] = {}
        """Level → the delay of its units, ms, if it differs from that in ``levels``."""

    def tags_code(self, delay: str, store_timestamp: int, tags_code: int, found: int | None) -> int:
        """Return the due time of a message, derived from earlier units of its level.

        ``found`` is the due time in the unit; ``None``: unknown.
        """
        expected = self._levels.tags_code(delay, store_timestamp, tags_code)
        if found is None or expected == tags_code:
            return expected
        if (known := self.delays_ms.get(delay)) is not None:
            return store_timestamp + known
        if found == expected:
            self._usual.add(delay)
        elif delay not in self._usual and self._may_be_level(found - store_timestamp):
            self.delays_ms[delay] = found - store_timestamp
            return found
        return expected

    def _may_be_level(self, delay_ms: int) -> bool:
        """Return whether a level can have this delay: whole seconds, within ``_MAX_DIGITS``."""
        return 0 <= delay_ms < 10**_MAX_DIGITS and delay_ms % _UNIT_MS["s"] == 0


def deliver_time(
    tags_code: int | None, delay_ms: int, log: LogView, phy_offset: int, size: int
) -> int:
    """Return the due time of the message of a unit of ``SCHEDULE_TOPIC_XXXX``, ms.

    The unit's tags code is that time. ``None``: it was an extension unit, which is lost. Then it is
    ``delay_ms``, the level's delay, after the store time of the record.
    """
    if tags_code is not None:
        return tags_code
    return log.store_timestamp(phy_offset, size) + delay_ms
