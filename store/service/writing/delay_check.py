"""Checks for messages that request a later delivery which is not supported.

Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``checkIfTimerMessage``.
"""

from collections.abc import Mapping

from cqstore.store.errors import IllegalMessageError
from cqstore.store.record.message import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANSACTION_MASK,
    Message,
    MessageProperty,
    SysFlag,
)
from cqstore.store.record.properties import level_of

TIMER = (
    MessageProperty.TIMER_DELIVER_MS,
    MessageProperty.TIMER_DELAY_MS,
    MessageProperty.TIMER_DELAY_SEC,
)
"""Properties that request a delivery time, which RocketMQ's timer wheel supports."""
_DELAY = MessageProperty.DELAY
NOT_QUEUED = (int(SysFlag.TRANSACTION_PREPARED), int(SysFlag.TRANSACTION_ROLLBACK))
"""Values of ``TRANSACTION_MASK`` of messages that are not added to a queue of their topic."""


def refuse_delay(message: Message) -> None:
    """Refuse a message that a broker would schedule first.

    A message on the topic of a schedule is scheduled already; a half message is delayed when it is
    committed, in RocketMQ too.

    Raises:
        IllegalMessageError: readers would see the message at once; the error names the property.
    """
    name = _delay_property(message.properties)
    if name is None or message.topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return
    if message.sys_flag & TRANSACTION_MASK in NOT_QUEUED:
        return
    raise IllegalMessageError(
        f"{name} is {message.properties[name]!r:.60}, but this store does not deliver delayed"
        " messages: readers would see it at once. Set enableScheduleMessageService to deliver by"
        " DELAY, or allowDelayWithoutService to store the message anyway"
    )


def refuse_timer(message: Message) -> None:
    """Refuse a message without a level that has a delivery time for a timer wheel.

    Raises:
        IllegalMessageError: the message has such a time; the error names the property.
    """
    name = _time_property(message.properties)
    if name is not None and message.topic != TIMER_TOPIC:
        raise IllegalMessageError(
            f"{name} is {message.properties[name]!r:.60}, but timer messages are not supported."
            " Give the delay as a level (DELAY)"
        )


def _delay_property(properties: Mapping[str, str]) -> str | None:
    level = level_of(properties.get(_DELAY))
    if level is None or level > 0:
        return _DELAY
    return _time_property(properties)


def _time_property(properties: Mapping[str, str]) -> str | None:
    if MessageProperty.TIMER_OUT_MS in properties:  # a timer has delivered it
        return None
    return next((name for name in TIMER if name in properties), None)
