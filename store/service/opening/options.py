"""OpenOptions: how a store is to be opened, beside its settings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from cqstore.store.progress import Progress, noop
from cqstore.store.service.dispatching.dispatcher_list import CommitLogDispatcher
from cqstore.store.service.recovering.replacement import Rebuild
from cqstore.store.service.runtime.environment import Environment
from cqstore.store.service.writing.put_hooks import PutMessageHook
from cqstore.store.service.writing.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of ``MessageStore.open``."""

    read_only: bool
    """Take no lock and change no byte."""
    backend: str | None = None
    """Name of the backend to read; ``None``: what lies on disk and the settings decide."""
    cut_at: int | None = None
    """Phy offset of damage at which the log may be cut, with all that lies behind."""
    pass_over: Collection[int] = ()
    """Phy offsets of damaged records that may be given up alone."""
    rebuild: Rebuild = Rebuild.NOTHING
    """What to build anew from the log."""
    housekeeping: bool = True
    """Run the threads that delete old log files and deliver delayed messages."""
    replicas: Replicas | None = None
    """The followers, where a put may wait for them."""
    put_hooks: Sequence[PutMessageHook] = ()
    """Are asked before a message is put, in this order."""
    dispatchers: Sequence[CommitLogDispatcher] = ()
    """Are called with each record before it is in its queue, in this order."""
    installed_hooks: bool = True
    """Have the hooks and dispatchers of installed packages, too, before these."""
    environment: Environment = field(default_factory=Environment)
    """The machine: its clock and how full its disks are."""
    progress: Progress = noop
    """Is called with phy offsets by the recovery."""
