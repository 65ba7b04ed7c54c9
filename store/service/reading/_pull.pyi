from cqstore.store.log._log import _Log
from cqstore.store.queue._estimate import _Queue
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.reading.puller import TagFilter
from cqstore.store.service.results import GetMessageResult
from cqstore.store.service.runtime.meters import GetMeter

class FastPull:
    found: int
    messages: int
    total_bytes: int
    def __init__(
        self,
        log: _Log,
        meter: GetMeter,
        max_bytes: int,
        max_count: int,
        in_memory: int,
        filtered: int,
        per_file: int,
    ) -> None: ...
    def get(
        self, queue: _Queue, offset: int, max_msgs: int, max_total_bytes: int
    ) -> GetMessageResult | None: ...

class Pulls:
    _fast: FastPull | None
    _queues: ConsumeQueueStore
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int = ...,
    ) -> GetMessageResult: ...
