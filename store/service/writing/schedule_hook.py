"""ScheduleMessageHook: redirects a put with a delay level to the schedule topic.

Source: RocketMQ ``HookUtils.handleScheduleMessage``, ``transformDelayLevelMessage``.
"""

from collections.abc import Callable

from cqstore.store.errors import IllegalMessageError
from cqstore.store.java_numbers import INT_MAX
from cqstore.store.progress import noop
from cqstore.store.record.message import (
    HALF_TOPIC,
    SCHEDULE_TOPIC,
    TRANSACTION_MASK,
    Message,
    MessageProperty,
)
from cqstore.store.record.properties import delay_level
from cqstore.store.service.dispatching.delay import DelayLevels
from cqstore.store.service.writing.delay_check import NOT_QUEUED, TIMER, refuse_delay, refuse_timer
from cqstore.store.settings.config import StoreConfig

_DELAY = MessageProperty.DELAY
_HOME = {MessageProperty.REAL_TOPIC, MessageProperty.REAL_QID}


class ScheduleMessageHook:
    """Handles messages that request a delay, under one configuration. Any thread."""

    def __init__(
        self, config: StoreConfig, levels: DelayLevels, check: Callable[[Message], object]
    ) -> None:
        """``check`` refuses messages that could not be put to their own topic when they are due."""
        self._is_on = config.enable_schedule_message_service
        self._refuses = not config.allow_delay_without_service
        self._max_level = levels.max_level
        self._check = check
        self.on_scheduled: Callable[[int], object] = noop
        """Called with the level of each message that was appended to the schedule's topic."""

    def handle(self, message: Message) -> Message:
        """Return the message to append: ``message``, a copy of the caller's, or its delayed form.

        Raises:
            IllegalMessageError: it requests a delay that is not supported, or could not be put into
                its own topic.
        """
        if not self._is_on:
            self.refuse(message)
            return message
        if message.sys_flag & TRANSACTION_MASK in NOT_QUEUED:
            return message  # it is delayed when it is committed
        level = delay_level(message.properties)
        if level <= 0:
            refuse_timer(message)
            return message
        return self._scheduled(message, level)

    def refuse(self, message: Message) -> None:
        """Refuse a message with a delay, also in a client batch.

        Raises:
            IllegalMessageError: the message requests a delay.
        """
        if self._refuses:
            refuse_delay(message)

    def appended(self, message: Message) -> None:
        """Schedule the result of ``handle`` for delivery, once it is in the log."""
        if self._is_on and message.topic == SCHEDULE_TOPIC:
            self.on_scheduled(message.queue_id + 1)

    def _scheduled(self, message: Message, level: int) -> Message:
        """Return the message that is put in place of one with a delay level.

        Raises:
            IllegalMessageError: a message of its topic or queue id cannot be delayed.
        """
        topic, queue_id = message.topic, message.queue_id
        if topic == SCHEDULE_TOPIC and message.properties.keys() >= _HOME:
            return message  # a copy of a message that waits elsewhere
        if topic in (SCHEDULE_TOPIC, HALF_TOPIC):
            raise IllegalMessageError(
                f"cannot delay a message of topic {topic}: it is a topic of the store itself"
            )
        if type(queue_id) is not int or not 0 <= queue_id <= INT_MAX:
            raise IllegalMessageError(f"invalid queue id {queue_id!r:.60}")
        self._check(message)
        properties = {
            name: value for name, value in message.properties.items() if name not in TIMER
        }
        if level > self._max_level:
            level = self._max_level
            properties[_DELAY] = str(level)
        properties[MessageProperty.REAL_TOPIC] = topic
        properties[MessageProperty.REAL_QID] = str(queue_id)
        return Message(
            SCHEDULE_TOPIC, message.body, level - 1, properties, message.flag, message.sys_flag,
            message.born_timestamp, message.born_host, message.store_host,
            message.reconsume_times, message.prepared_transaction_offset,
        )  # fmt: skip
