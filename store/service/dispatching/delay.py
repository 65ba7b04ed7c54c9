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
                raise StoreConfigError(
                    f"messageDelayLevel: invalid delay {level!r}: expected a number followed by s,"
                    " m, h or d, such as 30m"
                )
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


class FoundLevels:
    """Delays of levels as units have them, where no settings say what a broker's levels are.

    A level that its units contradict, all alike, is a level of the broker's own; one unit among
    others that differs is not.
    """

    def __init__(self, levels: DelayLevels) -> None:
        self._levels = levels
        self._usual = set[str]()  # levels of which a unit is as ``levels`` has it
        self.delays_ms: dict[str, int] = {}
        """Level → the delay that its units have, ms, where that is not the one of ``levels``."""

    def tags_code(self, delay: str, store_timestamp: int, tags_code: int, found: int | None) -> int:
        """Return when a message is due, by the units of its level that came before.

        ``found`` is what the unit has; ``None``: that is not known.
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
        """Return whether a level can have this delay: whole seconds, no more than a number has."""
        return 0 <= delay_ms < 10**_MAX_DIGITS and delay_ms % _UNIT_MS["s"] == 0


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
