"""The queues of backends and of stand-ins for them."""

from functools import partial
from typing import Any

from cqstore.cq_file.named_queue import NamedFileQueue
from cqstore.cq_rocksdb.queues.consume_queue import RocksDBConsumeQueue
from cqstore.store.queue.consume_queue import ConsumeQueue

QUEUES_OF: dict[str, type[ConsumeQueue]] = {"file": NamedFileQueue, "rocksdb": RocksDBConsumeQueue}
"""Backend → the class of its queues, to be patched."""


class QueueOf:
    """One queue of a stand-in whose methods take topic and queue id first."""

    blocks, read_units_below = (
        ConsumeQueue.blocks,
        ConsumeQueue.read_units_below,
    )  # by ``read_units``

    def __init__(self, queues: Any, topic: str, queue_id: int) -> None:
        self._queues, self._key = queues, (topic, queue_id)

    def ends(self) -> tuple[int, int]:
        return self.min_offset(), self.max_offset()

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._queues, name), *self._key)
