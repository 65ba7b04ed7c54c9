"""What a store has promised about its messages, and whether a reopened one keeps it."""

from dataclasses import dataclass, field, replace

from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import Message
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Put:
    """One message; ``number`` is never used again."""

    number: int
    queue: Queue
    length: int
    offset: int = -1
    phy_offset: int = -1
    """-1, as ``offset``: the put has not returned."""

    def message(self) -> Message:
        return Message(
            self.queue[0], self.body(), self.queue[1], {"KEYS": f"k{self.number}", "TAGS": "t"}
        )

    def body(self) -> bytes:
        return (b"%d " % self.number).ljust(self.length, b"x")


@dataclass(slots=True)
class Promises:
    """The puts in order, also those under way, and what may be said of them after a crash."""

    puts: list[Put] = field(default_factory=list)
    durable: int = 0
    """Leading puts that must be there."""
    began: dict[str, int] = field(default_factory=dict)
    """Topics that were deleted: their puts before that place are gone for good."""
    deleting: dict[str, int] = field(default_factory=dict)
    """Deletions under way: done or not."""
    min_phy_offset: int = 0
    """Where the log begins at least."""
    cleaning_to: int = 0
    """Where it begins at most."""

    def copy(self) -> "Promises":
        return replace(
            self, puts=list(self.puts), began=dict(self.began), deleting=dict(self.deleting)
        )

    def next_offset(self, queue: Queue) -> int:
        return len(self.lives(queue, self.began.get(queue[0], 0)))

    def lives(self, queue: Queue, begin: int) -> list[tuple[int, Put]]:
        puts = enumerate(self.puts[begin:], begin)
        return [(place, put) for place, put in puts if put.queue == queue]


def settle(store: MessageStore, promises: Promises) -> Promises:
    """Compare a store after a crash with what was promised; return what is true of it now."""
    first, found = compare_log(store, promises)
    now = promises.copy()
    now.puts = [*now.puts[:first], *found]
    end = len(now.puts)
    now.durable = end
    now.deleting = {}
    now.min_phy_offset = now.cleaning_to = max(store.min_phy_offset(), 0)
    now.began = {topic: min(begin, end) for topic, begin in now.began.items()}
    for topic, begin in promises.deleting.items():
        queues = {put.queue for put in now.puts if put.queue[0] == topic}
        left = {key.queue_id for key in store.queue_keys(topic) if store.max_offset(*key)}
        lived = {queue[1] for queue in queues if now.lives(queue, now.began.get(topic, 0))}
        assert left in (set(), lived), "a part of a topic was deleted"
        if not left:
            now.began[topic] = min(begin, end)
    compare_queues(store, now, first)
    damage = [finding for finding in store.check() if finding.damage]
    assert damage == [], damage
    return now


def compare_log(store: MessageStore, promises: Promises) -> tuple[int, list[Put]]:
    """Return how many puts lie before the log, and those that it holds, with their places."""
    log, puts = components_of(store).log, promises.puts
    low = max(log.min_phy_offset(), 0)
    assert promises.min_phy_offset <= low <= promises.cleaning_to
    found = [record.phy_offset for record in log.scan(low)]
    messages = [log.message(phy_offset) for phy_offset in found]
    numbers = [int(message.body.split()[0]) for message in messages]
    if numbers:
        first = next(at for at, put in enumerate(puts) if put.number == numbers[0])
    else:
        first = sum(0 <= put.phy_offset < low for put in puts)
    end = first + len(numbers)
    assert numbers == [put.number for put in puts[first:end]]
    assert end >= promises.durable, f"{promises.durable - end} durable messages are lost"
    assert all(0 <= put.phy_offset < low for put in puts[:first])
    for put, message, phy_offset in zip(puts[first:end], messages, found, strict=True):
        compare_message(put, message)
        assert put.phy_offset in (phy_offset, -1)
    return first, [
        replace(put, offset=message.queue_offset, phy_offset=phy_offset)
        for put, message, phy_offset in zip(puts[first:end], messages, found, strict=True)
    ]


def compare_message(put: Put, message: StoredMessage) -> None:
    assert (message.topic, message.queue_id) == put.queue
    assert message.body == put.body()
    assert message.properties["KEYS"] == f"k{put.number}"
    assert put.offset in (message.queue_offset, -1)


def compare_queues(store: MessageStore, promises: Promises, first: int) -> None:
    """Compare every queue; ``first`` is the first put that the log holds."""
    queues = {put.queue for put in promises.puts}
    keys = set()
    for queue in sorted(queues):
        lives = promises.lives(queue, promises.began.get(queue[0], 0))
        if lives:
            keys.add(queue)
        present = [put for place, put in lives if place >= first]
        low = len(lives) - len(present)
        ends = store.min_offset(*queue), store.max_offset(*queue)
        assert ends == (low, len(lives)), (queue, ends, low, len(lives))
        offsets = read_queue(store, queue, low, present)
        assert offsets == list(range(low, len(lives))), queue
        for put in present[:: max(len(present) // 5, 1)]:
            hits = store.query_message(queue[0], f"k{put.number}")
            assert [hit.body for hit in hits] == [put.body()], (hits[0].body, put.body())
    # Of a queue that the power cut took back to its very beginning, empty files may be left.
    assert keys == {tuple(key) for key in store.queue_keys() if store.max_offset(*key)}


def read_queue(store: MessageStore, queue: Queue, low: int, expected: list[Put]) -> list[int]:
    """Read a queue from ``low`` to its end; return the offsets that were read."""
    offsets: list[int] = []
    at = low
    while at < store.max_offset(*queue):
        result = store.get_message(*queue, at)
        assert result.queue_offsets, result.status
        for put, message in zip(expected[len(offsets) :], result.messages(), strict=False):
            compare_message(put, message)
        offsets += result.queue_offsets
        at = result.next_begin_offset
    return offsets
