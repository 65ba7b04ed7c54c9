"""CombinedConsumeQueueStore: several backends kept alike, one of them read.

Every write goes to all of them, in their order; offsets and reads come from the first. The log
positions from which records may be missing is the smallest, so a replay brings all up to date.

Source: RocketMQ ``CombineConsumeQueueStore``. Unlike it, nothing is ever initialised anew where
two backends disagree: that would hide history.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from store.paths import StorePaths
from store.queue.consume_queue_store import (
    ConsumeQueueStore,
    QueueFinding,
    QueueRestart,
    QueueStat,
    QueueStoreContext,
    QueueType,
)
from store.queue.units import CqUnit, QueueKey, UnitBatch, UnitBlock


class CombinedConsumeQueueStore(ConsumeQueueStore):
    """All of ``stores`` as one; ``stores[0]`` assigns offsets and is read."""

    name = "combined"

    def __init__(self, context: QueueStoreContext, stores: Sequence[ConsumeQueueStore]) -> None:
        super().__init__(context)
        self.stores = list(stores)
        self._read = self.stores[0]
        self.lmq_needs_multi_dispatch = self._read.lmq_needs_multi_dispatch
        self.counts_in_checkpoint = any(store.counts_in_checkpoint for store in stores)

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return False: a combined store is made of backends, not found by itself."""
        _ = paths
        return False

    def load(self) -> Self:
        """Open all; if one fails, those that were opened are closed again."""
        opened: list[ConsumeQueueStore] = []
        try:
            for store in self.stores:
                store.load()
                opened.append(store)
        except BaseException:
            for store in opened:
                store.close()
            raise
        return self

    def recover(self) -> None:
        """Recover all."""
        for store in self.stores:
            store.recover()

    def check_topic(self, topic: str) -> None:
        """Refuse what any of them cannot hold."""
        for store in self.stores:
            store.check_topic(topic)

    def dispatch_from_phy_offset(self) -> int:
        """Return the smallest of all."""
        return min(store.dispatch_from_phy_offset() for store in self.stores)

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Put into all; the restarts are those of the store that is read."""
        restarts = [store.put_batch(batch) for store in self.stores]
        return restarts[0]

    def truncate_dirty(self, phy_offset: int) -> int:
        """Truncate all; return the largest number of queues cut."""
        return max([store.truncate_dirty(phy_offset) for store in self.stores])

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Tell all."""
        for store in self.stores:
            store.allow_expiry(min_phy_offset)

    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Clean all; return the sum."""
        return sum([store.clean_expired(min_phy_offset, expired) for store in self.stores])

    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Restore in all that have no such queue."""
        for store in self.stores:
            if not store.max_offset(topic, queue_id):
                store.restore_end(topic, queue_id, queue_offset)

    def delete_topic(self, topic: str) -> None:
        """Delete from all."""
        for store in self.stores:
            store.delete_topic(topic)

    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete from all."""
        for store in self.stores:
            store.delete_queue(topic, queue_id)

    def flush(self, least_pages: int = 0) -> None:
        """Flush all."""
        for store in self.stores:
            store.flush(least_pages)

    def queues(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read."""
        return self._read.queues(topic, after)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Ask the store that is read."""
        return self._read.max_offset(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Ask the store that is read."""
        return self._read.min_offset(topic, queue_id)

    def read_units(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Ask the store that is read."""
        return self._read.read_units(topic, queue_id, queue_offset, max_count)

    def unit_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Ask the store that is read."""
        return self._read.unit_timestamp(topic, queue_id, queue_offset)

    def iterate(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[CqUnit]:
        """Ask the store that is read."""
        return self._read.iterate(topic, queue_id, queue_offset)

    @property
    def units_per_file(self) -> int:
        """Ask the store that is read."""
        return self._read.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Ask the store that is read."""
        return self._read.queue_type(topic)

    def resolve_tags_code(self, topic: str, queue_id: int, tags_code: int) -> int | None:
        """Ask the store that is read."""
        return self._read.resolve_tags_code(topic, queue_id, tags_code)

    def total_size_bytes(self) -> int:
        """Return the sum."""
        return sum(store.total_size_bytes() for store in self.stores)

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield the findings of all."""
        for store in self.stores:
            yield from store.check_files()

    def parts(self) -> Sequence[ConsumeQueueStore]:
        """Return the stores, the one that is read first."""
        return self.stores

    def describe(self) -> dict[str, object]:
        """Return the facts of all, each label with its backend's name."""
        return {
            f"{store.name} {label}": value
            for store in self.stores
            for label, value in store.describe().items()
        }

    def stats(self) -> Sequence[QueueStat]:
        """Return the numbers of all."""
        return [stat for store in self.stores for stat in store.stats()]

    def close(self) -> None:
        """Close all, also if one fails; the first failure is raised at the end."""
        failure: BaseException | None = None
        for store in self.stores:
            try:
                store.close()
            except Exception as exc:  # noqa: BLE001 - the others must be closed first
                failure = failure or exc
        if failure is not None:
            raise failure
