"""Options for opening a store, in addition to its settings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cqstore.store.progress import Progress, noop
from cqstore.store.service.dispatching.dispatcher_list import CommitLogDispatcher
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.writing.put_hooks import PutMessageHook
from cqstore.store.service.writing.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryOptions:
    """What the recovery of a store may discard, and what it rebuilds.

    Raises:
        TypeError: a value has a wrong type.
    """

    cut_at: int | None = None
    """Phy offset of damage at which the log may be cut: all bytes from there on are lost. Damage
    at any other offset is refused."""
    pass_over: Collection[int] = ()
    """Phy offsets of damaged records that may be skipped, each alone. Their queue offsets remain,
    and pulls skip them."""
    rebuild: Rebuild = Rebuild.NOTHING
    """What to rebuild from the log; the old queues or index are moved to ``cqstore/replaced``."""

    def __post_init__(self) -> None:
        if not isinstance(self.rebuild, Rebuild):
            raise TypeError(f"rebuild is {self.rebuild!r}: expected a Rebuild")
        if isinstance(self.pass_over, str | bytes | int):
            raise TypeError(
                f"pass_over is {self.pass_over!r}: expected a collection of phy offsets"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHooks:
    """Code that a store opened for writing calls when it puts and dispatches messages."""

    put_hooks: Sequence[PutMessageHook] = ()
    """Called before a message is put, in this order."""
    dispatchers: Sequence[CommitLogDispatcher] = ()
    """Called with each record before its unit is in the queue, in this order."""
    installed: bool = True
    """Call the put hooks and dispatchers of installed packages too, before these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """All options of an opening: those of ``MessageStore.open``, and those that only tests replace.

    ``backend`` is not compared with ``storeType``: the tools of this project read and rebuild
    backends that a broker's settings do not name.
    """

    read_only: bool = False
    """Take no lock and change no byte."""
    backend: str | None = None
    """Name of the backend to read; ``None``: the files on disk and the settings decide."""
    housekeeping: bool = True
    """Run the threads that delete old log files and deliver delayed messages."""
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    hooks: StoreHooks = field(default_factory=StoreHooks)
    replicas: Replicas | None = None
    """The followers, if a put may wait for them."""
    environment: Environment = field(default_factory=Environment)
    """The machine: its clock and the usage of its disks."""
    progress: Progress = noop
    """Called by the recovery with phy offsets."""
    refuse_lost_units: bool = True
    """Read-only: refuse RocksDB queues that lack records dispatched before a clean stop; otherwise
    ``RecoveryReport.undispatched_from`` has the first one."""
