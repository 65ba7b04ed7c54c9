"""Points of a projection: the measured resources at several numbers of queues.

A point is a store of a side's kind with that number of queues and a few messages in each. One
process writes it and another opens it, so that the resources are those after opening.
"""

from cqstore.ab.stores.side_store import SideStore
from cqstore.store.record.message import Message

QUEUES_A_TOPIC = 8
LOG_FILE_BYTES = 64 << 20
"""Size of log files of a point: small, because each point has its own log."""
_LIST = 256
_BODY = bytes(16)
_MIN_QUEUES, _MAX_QUEUES = 4_000, 16_000


def points(target: int, queues: int) -> list[int]:
    """Return the numbers of queues to measure, of a store of ``queues``, for ``target`` of them."""
    limit = min(max(queues, _MIN_QUEUES), _MAX_QUEUES)
    return [number for number in (limit // 16, limit // 4, limit) if number < target] or [target]


def units_a_queue(units: int, queues: int) -> int:
    """Return the messages per queue of a point: the store's average, at most 16."""
    return min(max(units // max(queues, 1), 1), 16)


def fill(side: SideStore, queues: int, units: int) -> None:
    """Put ``units`` messages to ``queues`` of a new store."""
    with side.open_at(side.root) as store:
        for first in range(0, units, _LIST):
            last = min(first + _LIST, units)
            store.put_messages([_message(number % queues) for number in range(first, last)])


def _message(queue: int) -> Message:
    topic = f"cqstore-ab-{queue // QUEUES_A_TOPIC:07d}"
    return Message(topic, _BODY, queue % QUEUES_A_TOPIC, {"TAGS": "a"}, born_timestamp=1)
