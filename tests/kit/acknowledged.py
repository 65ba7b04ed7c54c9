"""What a store has acknowledged, and whether it is still there: once, at its offset."""

from dataclasses import dataclass, field

from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.results import PutMessageResult

TOPIC = "t"
QUEUES = 2


@dataclass
class Acknowledged:
    """The puts that returned ``PUT_OK``: queue id and offset → phy offset and body."""

    bodies: dict[tuple[int, int], tuple[int, bytes]] = field(default_factory=dict)
    requested: int = 0

    def put(
        self, store: MessageStore, size: int = 300, *, is_odd: bool = False
    ) -> PutMessageResult:
        """Put one more message, and note it if the store says that it has it.

        An odd one has a number of a class of its own: it leaves the fast path.
        """
        number = self.requested
        self.requested += 1
        body = b"%d " % number * (size // 5)
        queue_id = number % QUEUES
        message = Message(TOPIC, body, queue_id, {"KEYS": f"k{number}"}, flag=is_odd or 0)
        result = store.put_message(message)
        if result.ok:
            assert (queue_id, result.queue_offset) not in self.bodies
            self.bodies[queue_id, result.queue_offset] = result.phy_offset, body
        return result

    def check(self, store: MessageStore) -> None:
        """Compare what the store holds: every one of them once, and offsets without a gap.

        Those whose log file has expired may be gone.
        """
        least = store.min_phy_offset()
        for queue_id in range(QUEUES):
            low, high = store.min_offset(TOPIC, queue_id), store.max_offset(TOPIC, queue_id)
            found: list[bytes] = []
            while low + len(found) < high:
                result = store.get_message(TOPIC, queue_id, low + len(found), 32)
                messages = result.messages()
                assert messages, result.status
                assert [m.queue_offset for m in messages] == result.queue_offsets
                found += [message.body for message in messages]
            for (of_queue, offset), (phy_offset, body) in self.bodies.items():
                if of_queue == queue_id and phy_offset >= least:
                    assert low <= offset < high
                    assert found[offset - low] == body
            assert len(set(found)) == len(found)
