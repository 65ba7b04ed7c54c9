"""OpenOptions: how a store is to be opened, beside its settings."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from store.progress import Progress, noop
from store.service.dispatching.dispatcher_list import CommitLogDispatcher
from store.service.recovering.replacement import Rebuild
from store.service.runtime.environment import Environment
from store.service.writing.put_hooks import PutMessageHook
from store.service.writing.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """The options of ``MessageStore.open``, which says what they mean."""

    read_only: bool
    backend: str | None = None
    cut_at: int | None = None
    pass_over: Collection[int] = ()
    rebuild: Rebuild = Rebuild.NOTHING
    housekeeping: bool = True
    replicas: Replicas | None = None
    put_hooks: Sequence[PutMessageHook] = ()
    dispatchers: Sequence[CommitLogDispatcher] = ()
    installed_hooks: bool = True
    environment: Environment = field(default_factory=Environment)
    progress: Progress = noop
