from collections.abc import Callable, Iterator
from typing import Any

from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.queue.units import UnitBatch

class ReplayBatcher:
    def __init__(
        self,
        *,
        note: Callable[..., object],
        deleted: DeletedTopics,
        scheduled: str,
        tags_prefix: str,
        keys_wanted: bool,
        tags_wanted: bool,
    ) -> None: ...
    def fill(
        self,
        blocks: Iterator[Any],
        result: object,
        units: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
        full_at: int,
    ) -> bool: ...
