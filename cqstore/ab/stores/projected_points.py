"""Points of a projection: what queues take at several numbers of them, each measured.

A point is a store of a side's own kind with as many queues as it says and a few messages in each;
it is put by one process and opened by another, so that what it takes is not what putting it took.
"""

from cqstore.ab.stores.side_store import SideStore
from cqstore.store.record.message import Message

QUEUES_A_TOPIC = 8
LOG_FILE_BYTES = 64 << 20
"""A log file of its own costs a point little."""
_LIST = 256
_BODY = bytes(16)
_MIN_QUEUES, _MAX_QUEUES = 4_000, 16_000


def points(target: int, queues: int) -> list[int]:
    """Return the numbers of queues to measure, of a store of ``queues``, for ``target`` of them."""
    limit = min(max(queues, _MIN_QUEUES), _MAX_QUEUES)
    return [number for number in (limit // 16, limit // 4, limit) if number < target] or [target]


def units_a_queue(units: int, queues: int) -> int:
    """Return how many messages a queue of a point has: as many as the store's have, if few."""
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
