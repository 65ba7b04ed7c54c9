"""Compare the backends of a store in which both have queues, and suggest what to do.

This happens after ``storeType`` was changed by hand: RocketMQ then fills the new backend only from
the last log files, and stops writing the old one.
"""

from dataclasses import dataclass
from typing import NamedTuple

from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.units import QueueKey
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of


class BackendComparison(NamedTuple):
    """One backend, compared with the other one."""

    name: str
    ends_at: int
    """Phy offset after the last record in its queues."""
    queues: int
    """Number of queues that lack units older than its end, which the other backend has."""
    units: int
    example: QueueKey | None

    def sentence(self, log_end: int) -> str:
        """Return a sentence about the units that the backend lacks."""
        words = []
        if self.units and self.example is not None:
            words.append(
                f"lack {self.units} older units in {self.queues} queues (for example in queue"
                f" {self.example.queue_id} of topic {self.example.topic!r})"
            )
        if self.ends_at < log_end:
            words.append(f"end at phy offset {self.ends_at}, but the log ends at {log_end}")
        return f"the {self.name} queues {' and '.join(words) or 'are complete'}"


@dataclass(frozen=True, slots=True)
class BothSides:
    """Both backends of a store, compared by the ends of their queues."""

    source: BackendComparison
    target: BackendComparison
    log_end: int

    def refusal(self) -> str:
        """Return why the queues are not moved, and the possible next steps."""
        source, target = self.source, self.target
        facts = f"{source.sentence(self.log_end)}; {target.sentence(self.log_end)}"
        there = f"the store already has {target.name} queues"
        both = (
            "run cqstore recover DIR to complete both backends from the log, then cqstore mode DIR"
            f" --to {target.name}, step by step"
        )
        alone = f"{both[0].upper()}{both[1:]}"
        if not (source.units or target.units) and source.ends_at == target.ends_at:
            return f"{there}: {facts}. {alone}"
        words = f"{there} (was storeType changed by hand?): {facts}"
        if self.why_not_replace():
            return f"{words}. {alone}"
        return (
            f"{words}. Use plan --replace to rebuild the {target.name} queues from the"
            f" {source.name} queues (the old ones are kept in cqstore/replaced), or {both}"
        )

    def why_not_replace(self) -> str | None:
        """Return why the source must not replace the target; ``None`` if it may."""
        if self.source.units:
            return (
                f"{self.source.sentence(self.log_end)}; the {self.target.name} queues have those"
                " units"
            )
        return None


def compare_backends(store: MessageStore, target: str) -> BothSides:
    """Compare the backend that is read with ``target``; the store is open read-only.

    Raises:
        StoreError: a queue cannot be read.
    """
    backends = {backend.name: backend for backend in components_of(store).queues.backends()}
    source = components_of(store).queues.backends()[0]
    mine, other = _side(source, backends[target]), _side(backends[target], source)
    return BothSides(mine, other, store.max_phy_offset())


def _side(backend: ConsumeQueueStore, other: ConsumeQueueStore) -> BackendComparison:
    """Return which units of ``other`` are missing in ``backend``."""
    ends_at, queues, units, example = backend.dispatch_from_phy_offset(), 0, 0, None
    for key in other.queues():
        queue = other.queue(*key)
        low, high = queue.ends()
        begin, end = backend.queue(*key).ends()
        lacking = max((high if begin >= end else min(begin, high)) - low, 0)
        if not lacking:
            continue
        first = next(queue.read_units(low, 1).rows(), None)
        if begin >= end and first is not None and first[0] >= ends_at:
            continue  # it will be dispatched from the log
        queues, units, example = queues + 1, units + lacking, example or key
    return BackendComparison(backend.name, ends_at, queues, units, example)
