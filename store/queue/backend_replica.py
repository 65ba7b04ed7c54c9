"""BackendReplica: one backend, what it is for, and up to where it is surely whole."""

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
"""What a replica gets where light queues lie in another one alone."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which backend does what, by name."""

    read: str
    assign: str
    """Queue offsets are taken from this one."""
    light: str | None = None
    """Light queues may lie in this one alone; what is on disk decides. ``None``: in all alike."""
    light_alone: bool = False
    """The settings want them there alone."""
    selections: Mapping[str, str] = field(default_factory=dict)
    """Backend → the topics it gets, see ``selects``; one that is not here gets all."""

    @property
    def needed(self) -> set[str]:
        """Return the backends without which the store cannot work."""
        light = {self.light} if self.light and self.light_alone else set()
        return {self.read, self.assign} | light


class BackendReplica:
    """One backend inside the combined store."""

    def __init__(
        self,
        kind: type[ConsumeQueueStore],
        context: QueueStoreContext,
        lines: LaggingBackends,
        roles: Roles,
    ) -> None:
        """Make the store, not yet loaded. One that lags is opened as after a crash."""
        self._context, self._lines = context, lines
        self.name = kind.name
        self.needed = self.name in roles.needed
        self.lags_from = lines.lags_from(self.name)
        self.selection = roles.selections.get(self.name)
        claimed = context.checkpoint.logics_phy_offset
        self.synced_to = claimed if kind.counts_in_checkpoint else 0
        """Every record that ends at or below is in its queue, durably."""
        if self.lags_from is not None:
            self.synced_to = self.lags_from
            view = _OwnClaim(self.synced_to)
            context = replace(context, checkpoint=view, last_exit_ok=False)
        self.store = kind(context)
        self.was_lagging = self.lags_from is not None
        """A line of ours said so when the replica was opened."""
        self.began_empty = False
        self.exclusive_queues: set[QueueKey] | None = None
        """Queues that it alone had before it was filled; ``None``: nothing had to be filled."""
        self.failure: Exception | None = None
        """Why it was detached."""

    # ---- up to where it is whole: the caller lets no other thread change that meanwhile

    def recover(self) -> None:
        """Recover the queues, and find out up to where they are whole."""
        store, context = self.store, self._context
        store.recover()
        if self.lags_from is not None and not context.read_only:
            # What lies behind the line has holes, or is of a program that did not keep the others.
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
        """Write the line that says that it is whole up to ``phy_offset`` alone, durably."""
        self._lines.note_lagging(self.name, phy_offset)
        self.lags_from = phy_offset

    def note_caught_up(self) -> None:
        """Note durably that the backend lags no more."""
        self._lines.caught_up(self.name)
        self.lags_from = None

    # ---- what it gets

    def accepts(self, topic: str) -> bool:
        """Return whether units of ``topic`` go to this replica."""
        return selects(self.selection, topic)

    def choose(self, batch: UnitBatch, has: int = 0) -> UnitBatch:
        """Return what of ``batch`` goes to this replica, which has all records before ``has``.

        It does not get those again: what was deleted from it meanwhile would come back.
        """
        if has:
            batch = batch.since(has)
        return batch if self.selection is None else batch.of_topics(self.accepts)

    # ---- about itself

    def describe(self) -> dict[str, object]:
        """Return the state of the replica, and the facts of its store."""
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
        """Yield how it stands, and the numbers of its store."""
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
    """Close the stores of all replicas, also if one fails or is cut short.

    ``failed`` is told what went wrong with a replica, and returns what is to be raised in the end.

    Raises:
        Exception: the first that ``failed`` returned; all are closed then.
    """
    failure: Exception | None = None
    with ExitStack() as closing:
        for replica in replicas:
            # A second close does nothing; an interrupt comes this way.
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
    """Return whether ``topic`` is one of ``selection``, see ``StoreConfig.double_write_topics``.

    With ``!`` before it: whether it is none of them.
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
    """A checkpoint that vouches for exactly what the line of a replica says."""

    logics_phy_offset: int
    min_timestamp: int = 0
