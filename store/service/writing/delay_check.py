"""What of a message asks for a later delivery, which a store alone does not give.

Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``checkIfTimerMessage``.
"""

import re
from collections.abc import Mapping

from store.errors import IllegalMessageError
from store.record.message import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_MASK,
    Message,
    MessageProperty,
    SysFlag,
)

_NO_LEVEL = re.compile(r"\+?0{1,9}|-[0-9]{1,9}")
"""What Java reads as a level of 0 or less."""
_TIMER = (
    MessageProperty.TIMER_DELIVER_MS,
    MessageProperty.TIMER_DELAY_MS,
    MessageProperty.TIMER_DELAY_SEC,
)
_DELAY = MessageProperty.DELAY
_NOT_QUEUED = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))


def refuse_delay(message: Message) -> None:
    """Refuse a message that a broker would put into a schedule first.

    A message on the topic of a schedule is in it already; a half message is delayed when it is
    committed, in RocketMQ too.

    Raises:
        IllegalMessageError: readers would see the message at once; the sentence names the property.
    """
    name = _asks_for_delay(message.properties)
    if name is None or message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return
    if message.sys_flag & TRANSACTION_MASK in _NOT_QUEUED:
        return
    raise IllegalMessageError(
        f"{name} is {message.properties[name]!r:.60}, and nothing here delivers a message later:"
        " readers would see it at once (allowDelayWithoutService stores it all the same)"
    )


def _asks_for_delay(properties: Mapping[str, str]) -> str | None:
    level = properties.get(_DELAY)
    if level is not None and not (type(level) is str and _NO_LEVEL.fullmatch(level)):
        return _DELAY
    if MessageProperty.TIMER_OUT_MS in properties:  # a timer has delivered it
        return None
    return next((name for name in _TIMER if name in properties), None)
