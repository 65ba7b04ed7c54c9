"""Conversion of a scheduled message that is due to the message for its own topic.

Source: RocketMQ ``ScheduleMessageService.messageTimeUp``, ``MessageTimeUp``.
"""

from cqstore.store.errors import CorruptionError
from cqstore.store.java_numbers import parse_int
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import HALF_TOPIC, SCHEDULE_TOPIC, Message, MessageProperty

_GONE = frozenset({
    MessageProperty.DELAY, MessageProperty.TIMER_DELIVER_MS, MessageProperty.TIMER_DELAY_MS,
    MessageProperty.TIMER_DELAY_SEC, MessageProperty.INNER_MULTI_QUEUE_OFFSET,
    MessageProperty.CRC32,
})  # fmt: skip
"""Properties that a delivered message does not have, or gets anew."""


def message_time_up(stored: StoredMessage) -> Message:
    """Return the message that ``stored`` delays, with the bytes of its body.

    Raises:
        CorruptionError: it has no valid topic or queue to deliver to.
    """
    properties = stored.properties
    topic = properties.get(MessageProperty.REAL_TOPIC)
    queue_id = parse_int(properties.get(MessageProperty.REAL_QID, ""))
    if not topic or topic in (SCHEDULE_TOPIC, HALF_TOPIC):
        raise _homeless(stored, MessageProperty.REAL_TOPIC)
    if queue_id is None or queue_id < 0:
        raise _homeless(stored, MessageProperty.REAL_QID)
    head, tail = stored.head, stored.tail
    return Message(
        topic, bytes(stored.stored_body), queue_id,
        {name: value for name, value in properties.items() if name not in _GONE},
        head.flag, head.sys_flag, head.born_timestamp, stored.born_host, stored.store_host,
        tail.reconsume_times,
    )  # fmt: skip


def _homeless(stored: StoredMessage, name: str) -> CorruptionError:
    return CorruptionError(
        "a delayed message has no valid target topic or queue", phy_offset=stored.phy_offset,
        expected=f"a valid property {name}", got=repr(stored.properties.get(name)),
    )  # fmt: skip
