from typing import final

from cqstore.store.log._log import _Log
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.reading.puller import Puller, TagFilter
from cqstore.store.service.results import GetMessageResult, GetMessageStatus
from cqstore.store.service.runtime._histogram import Histogram
from cqstore.store.settings.config import StoreConfig

MAX_QUEUE_OFFSET: int

class Pulls:
    queues: ConsumeQueueStore
    seconds: Histogram
    messages: int
    total_bytes: int
    def __init__(
        self, config: StoreConfig, log: _Log, queues: ConsumeQueueStore, in_memory: int
    ) -> None: ...
    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int = ...,
    ) -> GetMessageResult: ...
    @property
    def statuses(self) -> dict[GetMessageStatus, int]: ...

@final
class Pull:
    result: GetMessageResult
    first: int
    end: int
    def __init__(
        self,
        rules: Puller,
        offset: int,
        max_msgs: int,
        tags: TagFilter | None,
        max_total_bytes: int,
    ) -> None: ...
    def starts(self, low: int, high: int) -> bool: ...
    def further(self, at: int) -> int: ...
    def add(
        self, at: int, phy: int, size: int, tags_code: int | None, messages: int = ...
    ) -> bool: ...
    def finished(self) -> GetMessageResult: ...
