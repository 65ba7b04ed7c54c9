"""CombinedConsumeQueueStore: several backends with the same queues; one of them is read.

Every write goes to all replicas, first to those that are read or assign offsets. If one of them
fails, the store fails. Another replica that fails is *detached*: a durable line has the phy offset
up to which it is surely complete, it is not used again, and the next open catches it up by a replay
from there. The line is removed when the replica has caught up durably.

Source: RocketMQ ``CombineConsumeQueueStore``. Unlike RocketMQ, a backend is never initialised again
if two backends disagree: that would hide history.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

from cqstore.store.concurrency.checked_lock import CheckedLock
from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import (
    IllegalMessageError,
    QueueGapError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
)
from cqstore.store.journals.lagging_backends import LaggingBackends
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.backend_replica import NO_LIGHT, BackendReplica, Roles, close_all
from cqstore.store.queue.changes import Changes, changing, losing
from cqstore.store.queue.class_of_topic import ClassOfTopic
from cqstore.store.queue.consume_queue import ConsumeQueue
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.context import QueueStoreContext
from cqstore.store.queue.facts import (
    QueueDamage,
    QueueFinding,
    QueueRestart,
    QueueSpan,
    QueueStat,
    QueueType,
)
from cqstore.store.queue.light_home import diverged_replica, is_light, light_home
from cqstore.store.queue.read_router import QueueApart, ReadRouter
from cqstore.store.queue.reconcile import IsDeleted, backfill, reconcile_unlogged, refuse_lack
from cqstore.store.queue.topic_choice import takers, takes_batches
from cqstore.store.queue.units import QueueKey, UnitBatch

_LOG = StoreLogger(__name__)
_T = TypeVar("_T")


class CombinedConsumeQueueStore(ConsumeQueueStore):
    """The backends ``kinds`` of one store, as one store of queues.

    ``flush`` may run concurrently with the one writing thread: a lock guards the fields of a
    replica that both change.
    """

    name = "combined"

    def __init__(
        self,
        context: QueueStoreContext,
        kinds: Sequence[type[ConsumeQueueStore]],
        roles: Roles,
        lines: LaggingBackends,
        is_deleted: IsDeleted,
    ) -> None:
        """Create the replicas without loading them; ``roles`` names some of them."""
        super().__init__(context)
        self.changes = Changes()
        """The writes to all replicas: between two writes the replicas are equal."""
        self.roles = roles
        self._lines = lines
        replicas = [BackendReplica(kind, context, lines, roles) for kind in kinds]
        replicas.sort(key=lambda each: (each.name != roles.read, not each.needed))
        self._replicas = replicas
        by_name = {replica.name: replica.store for replica in replicas}
        self._read, self._assign = by_name[roles.read], by_name[roles.assign]
        self._router = ReadRouter(self._read, replicas, roles.left)
        self.lmq_needs_multi_dispatch = self._read.lmq_needs_multi_dispatch
        self.hides_unflushed = any(each.store.hides_unflushed for each in replicas if each.needed)
        # Guards synced_to and failure of the replicas, and the lines.
        self._lock = CheckedLock("a change of the backends")
        self._put_end = 0
        self._marks: dict[str, int] = {}
        self._replaying = True
        self._is_deleted = is_deleted
        self._count_in_checkpoint()

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return False: a combined store consists of backends, and has no files of its own."""
        _ = paths
        return False

    # ---- failures of replicas

    def _live(self) -> list[BackendReplica]:
        return [replica for replica in self._replicas if replica.failure is None]

    def _attempt(self, replica: BackendReplica, what: str, call: Callable[[], _T]) -> _T | None:
        """Call ``call``; if it fails and the store does not need the replica, detach it.

        Raises:
            StoreError: the store needs the replica, or its line cannot be written.
        """
        try:
            return call()
        except (StoreClosedError, StoreLockedError):
            raise
        except StoreError as exc:
            if replica.needed:
                raise
            self._detach(replica, what, exc)
            return None

    def _detach(self, replica: BackendReplica, what: str, exc: StoreError) -> None:
        """Stop writing to a failed replica; its line has the offset up to which it is complete."""
        with self._lock.entry():
            if replica.failure is not None:
                return
            if isinstance(exc, QueueGapError):
                replica.synced_to = 0  # units that it claimed to have are missing
            replica.note_lagging(replica.synced_to)
            replica.failure = exc
            self._count_in_checkpoint()
        _LOG.warning(
            "the %s backend is detached, complete up to phy offset %d: cannot %s: %s",
            replica.name, replica.synced_to, what, exc,
        )  # fmt: skip

    def _count_in_checkpoint(self) -> None:
        """Apply the checkpoint to its replicas only while they are written to."""
        self.counts_in_checkpoint = any(each.store.counts_in_checkpoint for each in self._live())

    @property
    def detached(self) -> dict[str, Exception]:
        """Return the detached replicas, which are unused until the next open, and their errors."""
        return {each.name: each.failure for each in self._replicas if each.failure is not None}

    @property
    def lagging(self) -> dict[str, int]:
        """Return the complete part (phy offset) of each replica that lags, or did at opening."""
        return {each.name: each.lags_from for each in self._replicas if each.lags_from is not None}

    # ---- opening

    def load(self) -> Self:
        """Open all replicas; if one that is needed fails, close those that were opened."""
        opened: list[BackendReplica] = []
        try:
            for replica in self._replicas:
                self._attempt(replica, "open the queues", replica.store.load)
                opened.append(replica)
            self._read_light_from(light_home(self._replicas, self.roles, self._lines))
        except BaseException:
            for replica in opened:
                replica.store.close()
            raise
        return self

    def _read_light_from(self, home: BackendReplica | None) -> None:
        if home is None:
            return
        self._router.light = home.store
        self.lmq_needs_multi_dispatch = home.store.lmq_needs_multi_dispatch

    def recover(self) -> None:
        """Recover every replica, and record those that lack records which are no longer in the log.

        If another program may have used the store, units are compared first, see ``_compare``.

        Raises:
            StoreError: a replica that the store needs failed; another one is detached.
            RefusedStoreError: as for ``_compare``.
        """
        for replica in self._live():
            self._attempt(replica, "recover the queues", replica.recover)
        if not self._lines.are_alike:
            self._compare()
        marks = {replica.name: replica.synced_to for replica in self._live()}
        newest, low = max(marks.values(), default=0), max(self.context.log.min_phy_offset(), 0)
        for replica in self._live():
            # If the log lacks the records that it needs, `catch_up` adds them at the end.
            lacks = replica.synced_to < newest and replica.synced_to <= low
            if lacks and replica.lags_from is None:
                replica.note_lagging(replica.synced_to)
        self._marks = marks

    def _compare(self) -> None:
        """Find units that a replica lacks although it claims to be complete; the replay adds them.

        RocketMQ enables double write silently, without the history. Does nothing if only one
        replica is left.

        Raises:
            RefusedStoreError: read-only, and the replica that the settings prefer lacks units.
        """
        live, config = self._live(), self.context.config
        if len(live) == 1:
            return
        whole = [replica for replica in live if replica.lags_from is None]
        if self._router.light is None:
            self._read_light_from(diverged_replica(whole, self.roles, self._is_deleted))
        for ahead in whole:  # units of the other replica may be deleted ones
            lagging = live[1 - live.index(ahead)]
            if not self.context.read_only:
                note = partial(lagging.note_lagging, 0)
                compare = partial(backfill, lagging, ahead, self._is_deleted, note)
                self._attempt(lagging, "compare the queues", compare)
            elif lagging.store is self._read and lagging.name == config.preferred_backend:
                refuse_lack(lagging, ahead, self._is_deleted, self.context.paths.root)

    def check_topic(self, topic: str) -> None:
        """Refuse a topic that a replica does not support, even a detached one: it must catch up.

        Raises:
            IllegalMessageError: one does not support it, or the one for light queues is detached.
        """
        light = self._router.light
        if light is not None and light.name in self.detached and is_light(topic):
            raise IllegalMessageError(
                f"topic {topic!r} cannot be stored: the {light.name} backend, which may have its"
                " light queue, is detached"
            )
        for replica in takers(self._replicas, topic, self.roles.left):
            replica.store.check_topic(topic)

    def takes_batches(self, topic: str) -> bool:
        """Return whether it is a topic that a move left in files, and those are in use."""
        return topic in self.roles.left and takes_batches(self._live(), topic)

    def dispatch_from_phy_offset(self) -> int:
        """Return the smallest offset of all; read-only, without catching up, of those needed."""
        read_only = self.context.read_only
        return min(self._marks[each.name] for each in self._live() if each.needed or not read_only)

    def damaged_queues(self) -> Sequence[QueueDamage]:
        """Return the damaged queues of all replicas; a queue is listed once per damaged replica."""
        return [each for replica in self._live() for each in replica.store.damaged_queues()]

    def damage_is_settled(self) -> None:
        """Make every replica accept units for all its queues again."""
        for replica in self._live():
            replica.store.damage_is_settled()

    def watermarks(self) -> dict[str, int]:
        """Return the offset up to which each replica was complete when it was opened."""
        return {replica.name: self._marks[replica.name] for replica in self._live()}

    # ---- writing

    @changing
    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Put into all replicas; the restarts are those of the replica that is read.

        During a replay of the log a replica gets only the units that it lacks.

        Raises:
            StoreError: a replica that the store needs failed, or an earlier write was interrupted.
        """
        restarts: list[QueueRestart] = []
        for replica in self._live():
            has = self._marks[replica.name] if self._replaying else 0
            if 0 < batch.end_phy_offset <= has:
                continue  # it has all units
            put = partial(replica.store.put_batch, replica.choose(batch, has))
            done = self._attempt(replica, "write units", put)
            if replica.store is self._read:
                restarts = done or []
        self._put_end = max(self._put_end, batch.end_phy_offset)
        return restarts

    @losing
    def truncate_dirty(self, phy_offset: int) -> int:
        """Truncate all replicas; return the largest number of truncated queues of a replica."""
        most = 0
        for replica in self._live():
            truncate = partial(replica.store.truncate_dirty, phy_offset)
            cut = self._attempt(replica, "cut them", truncate)
            most = max(most, cut or 0)
            with self._lock.entry():
                replica.synced_to = min(replica.synced_to, phy_offset)
                if replica.lags_from is not None and replica.lags_from > phy_offset:
                    replica.note_lagging(phy_offset)
        self._put_end = min(self._put_end, phy_offset)
        return most

    def catch_up(self) -> bool:
        """Copy state that the replay cannot restore from a complete replica to lagging ones.

        Their lines stay until ``allow_expiry``. Returns whether the checkpoint covers one of them:
        it must be advanced before the lines are removed.

        Raises:
            StoreError: a replica that the store needs failed; another one is detached.
        """
        live = self._live()
        lagging = [replica for replica in live if replica.lags_from is not None]
        ahead = [replica for replica in live if replica.lags_from is None]
        for replica in lagging if ahead else ():
            reconcile = partial(reconcile_unlogged, replica, ahead[0], self._is_deleted)
            self._attempt(replica, "catch up", reconcile)
        if lagging:
            self.flush()
        return any(each.store.counts_in_checkpoint for each in lagging if each.failure is None)

    def allow_expiry(self, min_phy_offset: int) -> None:
        """End the recovery: remove the lines of replicas that caught up, and allow expiry in all.

        From now on topics are read from the backend that the settings name.

        Raises:
            StoreError: a replica that the store needs failed, or a line cannot be written.
        """
        self._replaying = False
        if classes := self.context.config.read_topic_classes:
            self._router.apart = ClassOfTopic(classes, "")
        for replica in self._live():
            if replica.lags_from is not None:
                with self._lock.entry():
                    replica.note_caught_up()
        for replica in self._live():
            self._attempt(
                replica, "expire units", partial(replica.store.allow_expiry, min_phy_offset)
            )
        if len(self._live()) == len(self._replicas) > 1:
            self._lines.note_alike()

    @changing
    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Clean every backend; return the sum of their results."""
        done = []
        for replica in self._live():
            clean = partial(replica.store.clean_expired, min_phy_offset, expired)
            done.append(self._attempt(replica, "clean the queues", clean))
        return sum(count or 0 for count in done)

    @changing
    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Restore the end in all replicas with no units and a lower end, possible after a crash."""
        for replica in self._live():
            if not replica.accepts(topic):
                continue
            low, high = replica.store.queue(topic, queue_id).ends()
            if low == high < queue_offset:
                restore = partial(replica.store.restore_end, topic, queue_id, queue_offset)
                self._attempt(replica, "restore the end of a queue", restore)

    @losing
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete from all replicas; a detached one deletes them when it catches up."""
        for replica in self._live():
            self._attempt(replica, "delete topics", partial(replica.store.delete_topics, topics))

    @losing
    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete the queue from every backend."""
        for replica in self._live():
            delete = partial(replica.store.delete_queue, topic, queue_id)
            self._attempt(replica, "delete a queue", delete)

    def flush(self, least_pages: int = 0) -> None:
        """Flush every backend, one after the other."""
        end = self._put_end
        for replica in self._live():
            self._attempt(replica, "flush the queues", partial(replica.store.flush, least_pages))
            if not least_pages:
                with self._lock.entry():
                    if replica.failure is None:
                        replica.synced_to = max(replica.synced_to, end)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the largest of all with the queue: a put must not overwrite a replica's units."""
        return max(
            replica.store.queue(topic, queue_id).max_offset()
            for replica in self._live()
            if replica.accepts(topic)
        )

    # ---- reading: one backend serves it, see ``ReadRouter``

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue in the backend that serves ``topic``."""
        router = self._router
        if router.apart is not None and router.apart.of(topic):
            return QueueApart(router, self.context, topic, queue_id)
        return router.reader(topic).queue(topic, queue_id)

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read; separately stored light queues are last."""
        return self._router.queues(topic, after, prefix)

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield the spans of the store that is read; light queues may be those of another store."""
        light = self._router.light
        return super().spans(topic, after) if light else self._read.spans(topic, after)

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Read all from the store that is read in one call, unless some are in another store."""
        router = self._router
        apart = router.light is not None or router.apart is not None
        return super().unit_timestamps(units) if apart else self._read.unit_timestamps(units)

    def queues_estimate(self) -> int | None:
        """Return the estimate of the store that is read, or of separate light queues if larger."""
        estimates = (each.queues_estimate() for each in (self._read, self._router.light) if each)
        return max((count for count in estimates if count is not None), default=None)

    @property
    def units_per_file(self) -> int:
        """Return the value of the store that is read."""
        return self._read.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return ``BATCH`` if any replica does, otherwise the type in the store that is read."""
        kinds = {replica.store.queue_type(topic) for replica in self._live()}
        if QueueType.BATCH in kinds:
            return QueueType.BATCH
        return self._router.reader(topic).queue_type(topic)

    def alike(self, topic: str) -> tuple[ConsumeQueueStore, ConsumeQueueStore] | None:
        """Return the backend that serves ``topic``, and another one with the same units, if any."""
        return self._router.alike(topic)

    # ---- state

    @property
    def selections(self) -> list[str]:
        """Return the selections; every replica gets a topic that is in all of them."""
        live = self._live()
        given = [self._lines.covers(replica.name) for replica in live]
        given += [replica.selection for replica in live if replica.selection == NO_LIGHT]
        return [each for each in given if each is not None]

    def total_size_bytes(self) -> int:
        """Return the sum, without detached replicas."""
        return sum(replica.store.total_size_bytes() for replica in self._live())

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield the findings of all replicas that are not detached."""
        for replica in self._live():
            yield from replica.store.check_files()

    def read_through(self, progress: Progress = noop) -> None:
        """Read through every backend that is not detached."""
        for replica in self._live():
            replica.store.read_through(progress)

    def backends(self) -> Sequence[ConsumeQueueStore]:
        """Return the stores in use, starting with the one that is read."""
        return [replica.store for replica in self._live()]

    def locks(self) -> Sequence[CheckedLock]:
        """Return the lock of the combined store, then those of every backend."""
        return [self._lock, *(lock for replica in self._replicas for lock in replica.store.locks())]

    def describe(self) -> dict[str, object]:
        """Return the facts of all replicas, each label with its backend's name."""
        light = self._router.light
        facts = self.roles.describe(None if light is None else light.name)
        if given := self.context.config.read_topics:
            facts["topics read apart"] = given
        for replica in self._replicas:
            for label, value in replica.describe().items():
                facts[f"{replica.name} {label}"] = value
        return facts

    def stats(self) -> Sequence[QueueStat]:
        """Return the numbers of all replicas, and the state of each."""
        return [each for replica in self._replicas for each in replica.stats()]

    def written_bytes(self) -> Mapping[str, int]:
        """Return the sums of all replicas that are in use."""
        found: Counter[str] = Counter()
        for replica in self._live():
            found.update(replica.store.written_bytes())
        return found

    def close(self, *, flush: bool = True) -> None:
        """Close all, also if a close fails or is interrupted; raise a needed replica's error."""
        close_all(self._replicas, self._close_failed if flush else lambda _, exc: exc, flush=flush)

    def _close_failed(self, replica: BackendReplica, exc: Exception) -> Exception | None:
        """Detach a backend that could not be closed; return the error to raise, if any."""
        if replica.failure is not None:
            return None  # its error was recorded before
        if replica.needed or not isinstance(exc, StoreError):
            return exc
        try:
            self._detach(replica, "close the queues", exc)
        except StoreError as unwritten:
            return unwritten
        return None
