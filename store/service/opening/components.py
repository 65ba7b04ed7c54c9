"""StoreComponents: the components of an open store, set by ``open_store``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.journals.index_files import note_index_files
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.journals.store_lock import StoreLock, mark_closed
from cqstore.store.log.checkpoint import StoreCheckpoint
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.layout.store_layout import StoreLayout
from cqstore.store.service.maintenance.clean_service import CleanService
from cqstore.store.service.maintenance.file_expiry import FileExpiry
from cqstore.store.service.metrics.metrics import StoreMetrics
from cqstore.store.service.reading.key_queries import KeyQueries
from cqstore.store.service.reading.other_indexes import OtherIndexes
from cqstore.store.service.reading.puller import Puller
from cqstore.store.service.reading.read_interceptor import InstalledInterceptor, InterceptorService
from cqstore.store.service.recovering.queue_rebuild import QueueRebuild
from cqstore.store.service.recovering.recovery_report import RecoveryReport
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.batch_topics import BatchTopics
from cqstore.store.service.writing.flush import FlushService, FullFlush
from cqstore.store.service.writing.group_commit import GroupCommit
from cqstore.store.service.writing.log_prefault import LogPrefault
from cqstore.store.service.writing.putter import Puts, Putter
from cqstore.store.service.writing.replicas import ReplicaWait
from cqstore.store.settings.config import StoreConfig

if TYPE_CHECKING:
    from cqstore.store.service.reading.loop_waits import LoopWaits
    from cqstore.store.service.scheduling.schedule_message_service import ScheduleMessageService
    from cqstore.store.service.writing.loop_puts import LoopPuts

_LOG = StoreLogger(__name__)


class ThreadService(Protocol):
    """A service with its own threads."""

    def stop(self) -> None:
        """End the threads."""


@dataclass(eq=False, repr=False, slots=True)
class StoreComponents:
    """All components of an open store. Opening sets each once, in one of its three steps."""

    # loaded from disk
    layout: StoreLayout
    config: StoreConfig
    lock: StoreLock | None
    """``None``: read-only."""
    state: RunningState
    checkpoint: StoreCheckpoint
    last_exit_ok: bool
    report: RecoveryReport
    log: CommitLog
    lines: LaggingBackends
    deleted: DeletedTopics
    queues: ConsumeQueueStore

    # recovered: log, queues and index are consistent
    index: IndexService | None = field(init=False)
    others: OtherIndexes = field(init=False)
    pending: Pending = field(init=False)
    commit: GroupCommit = field(init=False)
    dispatcher: Dispatcher = field(init=False)
    rebuild: QueueRebuild = field(init=False)

    # services
    flush: FlushService = field(init=False)
    flush_all: FullFlush = field(init=False)
    puller: Puller = field(init=False)
    queries: KeyQueries = field(init=False)
    batch_topics: BatchTopics = field(init=False)
    putter: Putter = field(init=False)
    puts: Puts = field(init=False)
    """The entry point of puts: the putter, or the put hooks in front of it."""
    interceptor: InstalledInterceptor | None = field(init=False)
    """Intercepts reads from the opening to the close."""
    clean: CleanService = field(init=False)
    expiry: FileExpiry = field(init=False)
    metrics: StoreMetrics = field(init=False)
    ahead: LogPrefault | None = field(init=False)
    replicas: ReplicaWait | None = field(init=False)
    schedule: "ScheduleMessageService | None" = field(init=False)
    loops: "tuple[LoopPuts, LoopWaits] | None" = field(init=False)
    """Puts and waits for tasks of event loops; ``None``: read-only."""
    services: list[ThreadService] = field(default_factory=list)
    """The services with threads, in the order in which they were started."""
    attached: dict[type, InterceptorService] = field(default_factory=dict)
    """Services of upper layers that run for the open store, such as those that intercept its calls
    by ``route_calls``; at most one per type. A close ends them first."""

    @property
    def paths(self) -> StorePaths:
        """Return the paths of the store's files."""
        return self.layout.paths

    @property
    def read_only(self) -> bool:
        """Return whether the store is read-only."""
        return self.lock is None

    @property
    def keeps_log(self) -> bool:
        """Return whether nothing is written to the log: read-only, or only queues are moved."""
        return self.read_only or bool(self.layout.log_writer)

    def refuse_own_threads(self) -> None:
        """Refuse a call that waits for the end of the threads from one of these threads.

        Raises:
            NestedCallError: the caller is such a thread.
        """
        reput = self.dispatcher.reput
        services = (
            self.flush, self.expiry, self.interceptor, self.ahead, self.replicas, reput,
            self.schedule, *tuple(self.attached.values()),
        )  # fmt: skip
        for service in services:
            if service is not None and service.worker is not None:
                service.worker.refuse_itself()
        self.dispatcher.arrivals.refuse_own_threads()

    def refuse_if_delivering(self) -> None:
        """Refuse bytes of another store's log if this store delivers delayed messages.

        Raises:
            RefusedStoreError: it does.
        """
        if self.schedule is not None:
            raise RefusedStoreError(
                "enableScheduleMessageService is not supported on a follower: its master delivers"
                " delayed messages", path=self.paths.root,
            )  # fmt: skip

    def stop(self) -> None:
        """End the threads, in reverse order of their start."""
        for service in tuple(self.attached.values()):
            service.stop()
        for each in reversed(self.services):
            each.stop()

    def closes(self, *, flush_index: bool, dropped: bool = False) -> list[Callable[[], None]]:
        """Return functions that close each component, in order; unflushed if it was ``dropped``."""
        closes: list[Callable[[], None]] = [
            self.others.close,
            partial(self.queues.close, flush=not dropped),
            partial(self.log.close, keep_ahead=dropped),
        ]
        if self.index is not None:
            closes.insert(0, partial(self.index.close, flush=flush_index))
        return closes

    def release(self, *, flushed: bool) -> None:
        """Release every component, also if an earlier one fails: the store has failed then.

        It counts as cleanly closed only if everything was ``flushed`` before.
        """
        state = self.state
        for close in self.closes(flush_index=flushed and state.failure is None):
            try:
                close()
            except StoreError as exc:
                _LOG.warning("cannot close a component of the store: %s", exc)
                state.fail(exc)
        if self.lock is not None:
            if flushed and state.failure is None:
                if self.index is not None:
                    note_index_files(self.paths, (file.path.name for file in self.index.files))
                try:
                    mark_closed(self.paths)
                except StoreError as exc:
                    state.fail(exc)
            self.lock.release()


class _OpenStore(Protocol):
    """A ``MessageStore``, which is in a layer above."""

    _components: StoreComponents


def make_loops() -> "tuple[LoopPuts, LoopWaits]":
    """Create puts and waits for tasks of event loops; a read-only store needs none."""
    from cqstore.store.service.reading.loop_waits import LoopWaits  # noqa: PLC0415
    from cqstore.store.service.writing.loop_puts import LoopPuts  # noqa: PLC0415

    return LoopPuts(), LoopWaits()


def components_of(store: _OpenStore) -> StoreComponents:
    """Return the components of an open ``MessageStore``: only for the packages of this project.

    Their types may change in any release; the methods and attributes of ``MessageStore`` do not.
    """
    return store._components  # noqa: SLF001 - the one place
