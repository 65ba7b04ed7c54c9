"""A part of the combined store: one backend, what it is for, and up to where it is surely whole."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from store.journals.lagging_backends import LaggingBackends
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.units import QueueKey, UnitBatch
from store.record.message import LMQ_PREFIX

NO_LIGHT = f"!{LMQ_PREFIX}*"
"""What a part gets where light queues lie in another one alone."""


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
        """Make the store, not yet loaded. One that is behind is opened as after a crash."""
        self.name = kind.name
        self.needed = self.name in roles.needed
        self.behind = lines.behind(self.name)
        self.selection = roles.selections.get(self.name)
        claimed = context.checkpoint.logics_phy_offset
        self.whole = claimed if kind.counts_in_checkpoint else 0
        """Every record that ends at or below is in its queue, durably."""
        if self.behind is not None:
            self.whole = self.behind
            view = _OwnClaim(self.whole)
            context = replace(context, checkpoint=view, last_exit_ok=False)
        self.store = kind(context)
        self.was_behind = self.behind is not None
        """A line of ours said so when the part was opened."""
        self.began_empty = False
        self.own: set[QueueKey] | None = None
        """Queues that it alone had before it was filled; ``None``: nothing had to be filled."""
        self.failure: Exception | None = None
        """Why it was detached."""

    def accepts(self, topic: str) -> bool:
        """Return whether units of ``topic`` go to this part."""
        return selects(self.selection, topic)

    def choose(self, batch: UnitBatch, has: int = 0) -> UnitBatch:
        """Return what of ``batch`` goes to this part, which has all records before ``has``.

        It does not get those again: what was deleted from it meanwhile would come back.
        """
        if has:
            batch = batch.since(has)
        return batch if self.selection is None else batch.of_topics(self.accepts)

    def describe(self) -> dict[str, object]:
        """Return the state of the replica, and the facts of its store."""
        facts: dict[str, object] = {}
        if self.selection not in {None, NO_LIGHT}:
            facts["gets only"] = self.selection
        if self.failure is not None:
            facts["detached"] = f"whole up to phy offset {self.whole}: {self.failure}"
            return facts
        if self.behind is not None:
            facts["behind"] = f"whole up to phy offset {self.behind}"
        return facts | self.store.describe()

    def has_live_units(self, topic: str, queue_id: int) -> bool:
        """Return whether the queue has a unit whose record is in the log."""
        low, high = self.store.queue(topic, queue_id).ends()
        return low < high


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
    """A checkpoint that vouches for exactly what the line of a part says."""

    logics_phy_offset: int
    min_timestamp: int = 0
