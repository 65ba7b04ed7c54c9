"""What a store serves, and which backends it reads: for tests that compare before and after."""

from pathlib import Path

from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


def served(root: Path) -> dict[QueueKey, list[tuple[int, int, int]]]:
    """What the store serves from its minimum on, read-only: its end, then its units."""
    with MessageStore.open(root, read_only=True) as store:
        found = {}
        for key in store.queue_keys():
            low, high = store.min_offset(*key), store.max_offset(*key)
            block = components_of(store).queues.queue(*key).read_units(low, high - low)
            assert block.count == high - low
            found[key] = [(high, 0, 0), *block.rows()]
        return found
