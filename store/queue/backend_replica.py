"""BackendReplica: one backend, its role, and the phy offset up to which it is complete."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import QueueStat
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.record.message import LMQ_PREFIX

NO_LIGHT = f"!{LMQ_PREFIX}*"
"""Selection of a replica when another one alone has the light queues."""


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each backend, by name."""

    read: str
    assign: str
    """The backend that assigns queue offsets."""
    light: str | None = None
    """Only this backend may have light queues; files on disk decide. ``None``: all have them."""
    light_alone: bool = False
    """The settings require light queues in that backend alone."""
    selections: Mapping[str, str] = field(default_factory=dict)
    """Backend → the topics it gets, see ``selects``; a backend without an entry gets all."""
    left: frozenset[str] = frozenset()
    """BatchCQ topics that a move left in files: only the file backend has them."""

    @property
    def needed(self) -> set[str]:
        """Return the backends that the store needs in order to work."""
        light = {self.light} if self.light and self.light_alone else set()
        return {self.read, self.assign} | light

    def describe(self, light: str | None) -> dict[str, object]:
        """Return the facts of the roles; ``light``: the backend that alone has the light queues."""
        facts: dict[str, object] = {"offsets from": self.assign}
        if light is not None:
            reason = "" if self.light_alone else ", although combineCQUseRocksdbForLmq is not set"
            facts["light queues in"] = f"{light} alone{reason}"
        if self.left:
            facts["topics left in files"] = ", ".join(sorted(self.left))
        return facts


class BackendReplica:
    """One backend inside the combined store."""

    def __init__(
        self,
        kind: type[ConsumeQueueStore],
        context: QueueStoreContext,
        lines: LaggingBackends,
        roles: Roles,
    ) -> None:
        """Create the store without loading it. A lagging replica is opened as after a crash."""
        self._context, self._lines = context, lines
        self.name = kind.name
        self.needed = self.name in roles.needed
        self.lags_from = lines.lags_from(self.name)
        self.selection = roles.selections.get(self.name)
        claimed = context.checkpoint.logics_phy_offset
        self.synced_to = claimed if kind.counts_in_checkpoint else 0
        """Every record that ends at or before it is in its queue, durably."""
        if self.lags_from is not None:
            self.synced_to = self.lags_from
            view = _OwnClaim(self.synced_to)
            context = replace(context, checkpoint=view, last_exit_ok=False)
        self.store = kind(context)
        self.was_lagging = self.lags_from is not None
        """A line of ours stated so when the replica was opened."""
        self.began_empty = False
        self.exclusive_queues: set[QueueKey] | None = None
        """Queues that only it had before it was filled; ``None``: there was nothing to fill."""
        self.failure: Exception | None = None
        """Why it was detached."""

    # ---- the offset up to which it is complete: no other thread may change it meanwhile

    def recover(self) -> None:
        """Recover the queues, and find the phy offset up to which they are complete."""
        store, context = self.store, self._context
        store.recover()
        if self.lags_from is not None and not context.read_only:
            # Units after the line have gaps, or were written by a program that did not keep other
            # backends.
            store.truncate_dirty(max(self.lags_from, context.log.min_phy_offset()))
        self.began_empty = next(store.queues(), None) is None
        claimed = store.dispatch_from_phy_offset()
        self.synced_to = claimed if self.lags_from is None else min(claimed, self.lags_from)
        if context.read_only:
            return
        had = self._lines.covers(self.name)
        if had not in {None, self.selection}:
            self.synced_to = 0
            self.note_lagging(0)
        self._lines.note_covers(self.name, self.selection)

    def note_lagging(self, phy_offset: int) -> None:
        """Write the line that the replica is complete only up to ``phy_offset``, durably."""
        self._lines.note_lagging(self.name, phy_offset)
        self.lags_from = phy_offset

    def note_caught_up(self) -> None:
        """Record durably that the backend no longer lags."""
        self._lines.caught_up(self.name)
        self.lags_from = None

    # ---- topics

    def accepts(self, topic: str) -> bool:
        """Return whether units of ``topic`` go to this replica."""
        return selects(self.selection, topic)

    def choose(self, batch: UnitBatch, has: int = 0) -> UnitBatch:
        """Return the units of ``batch`` for this replica, which has all records before ``has``.

        Earlier units are left out: units that were deleted meanwhile would reappear.
        """
        if has:
            batch = batch.since(has)
        return batch if self.selection is None else batch.of_topics(self.accepts)

    # ---- state

    def describe(self) -> dict[str, object]:
        """Return the state of the replica, and the description of its store."""
        facts: dict[str, object] = {}
        if self.selection not in {None, NO_LIGHT}:
            facts["gets only"] = self.selection
        if self.failure is not None:
            facts["detached"] = f"complete up to phy offset {self.synced_to}: {self.failure}"
            return facts
        if self.lags_from is not None:
            facts["lagging"] = f"complete up to phy offset {self.lags_from}"
        return facts | self.store.describe()

    def stats(self) -> Iterator[QueueStat]:
        """Yield the state of the replica, and the numbers of its store."""
        failed = self.failure is not None
        yield QueueStat("queue_backend_detached", self.name, int(failed))
        yield QueueStat("queue_backend_whole_phy_offset", self.name, self.synced_to)
        if not failed:
            yield from self.store.stats()

    def has_live_units(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue has a unit whose record is in the log."""
        low, high = self.store.queue(topic, queue_id).ends()
        return low < high


def close_all(
    replicas: Sequence[BackendReplica],
    failed: Callable[[BackendReplica, Exception], Exception | None],
    *,
    flush: bool,
) -> None:
    """Close the stores of all replicas, also if one close fails or is interrupted.

    ``failed`` is called with each error and its replica, and returns the error to raise at the end.

    Raises:
        Exception: the first error that ``failed`` returned; all stores are closed then.
    """
    failure: Exception | None = None
    with ExitStack() as closing:
        for replica in replicas:
            # A second close does nothing; an interrupt takes this path.
            closing.callback(replica.store.close, flush=flush)
        for replica in replicas:
            try:
                replica.store.close(flush=flush)
            except Exception as exc:  # noqa: BLE001 - the others must be closed first
                failure = failure or failed(replica, exc)
        closing.pop_all()
    if failure is not None:
        raise failure


def selects(selection: str | None, topic: str) -> bool:
    """Return whether ``selection`` contains ``topic``, see ``StoreConfig.double_write_topics``.

    If it begins with ``!``: whether it does not contain ``topic``.
    """
    if selection is None:
        return True
    if selection.startswith("!"):
        return not selects(selection[1:], topic)
    return any(
        topic.startswith(name[:-1]) if name.endswith("*") else topic == name
        for name in selection.split(";")
    )


@dataclass(frozen=True, slots=True)
class _OwnClaim:
    """A checkpoint that confirms exactly the phy offset in a replica's line."""

    logics_phy_offset: int
    min_timestamp: int = 0
