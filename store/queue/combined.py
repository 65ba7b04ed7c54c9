"""CombinedConsumeQueueStore: several backends kept alike, one of them read.

Every write goes to all parts, first to those that are read or assign offsets. If such a one fails
the store fails. Any other part that fails is *detached*: a durable line says up to which phy
offset it is surely whole, it is not touched again, and the next open catches it up by replaying the
log from there. The line goes when the part is caught up and durably so.

Source: RocketMQ ``CombineConsumeQueueStore``. Unlike it, nothing is ever initialised anew where
two backends disagree: that would hide history.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Self, TypeVar

from store.checked_lock import CheckedLock
from store.errors import (
    IllegalMessageError,
    QueueGapError,
    StoreClosedError,
    StoreError,
    StoreLockedError,
)
from store.journals.lagging_backends import LaggingBackends
from store.logger import StoreLogger
from store.paths import StorePaths
from store.progress import Progress, noop
from store.queue.backend_replica import NO_LIGHT, BackendReplica, Roles, close_all
from store.queue.changes import Changes, changing, losing
from store.queue.class_of_topic import ClassOfTopic
from store.queue.consume_queue import ConsumeQueue
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.context import QueueStoreContext
from store.queue.facts import (
    QueueDamage,
    QueueFinding,
    QueueRestart,
    QueueSpan,
    QueueStat,
    QueueType,
)
from store.queue.light_home import diverged_replica, is_light, light_home
from store.queue.read_router import QueueApart, ReadRouter
from store.queue.reconcile import IsDeleted, backfill, reconcile_unlogged, refuse_lack
from store.queue.units import QueueKey, UnitBatch

_LOG = StoreLogger(__name__)
_T = TypeVar("_T")


class CombinedConsumeQueueStore(ConsumeQueueStore):
    """All of ``kinds`` as one.

    ``flush`` may run beside the one writing thread: what it and the writer change of a part is
    guarded by a lock.
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
        """Make the parts, not yet loaded; ``roles`` names some of them."""
        super().__init__(context)
        self.changes = Changes()
        """The writes to all parts: between two of them the parts are alike."""
        self.roles = roles
        self._lines = lines
        made = [BackendReplica(kind, context, lines, roles) for kind in kinds]
        self._parts = sorted(made, key=lambda part: (part.name != roles.read, not part.needed))
        by_name = {part.name: part.store for part in made}
        self._read, self._assign = by_name[roles.read], by_name[roles.assign]
        self._router = ReadRouter(self._read, self._parts)
        self.lmq_needs_multi_dispatch = self._read.lmq_needs_multi_dispatch
        self.hides_unflushed = any(each.store.hides_unflushed for each in made if each.needed)
        self._lock = CheckedLock(
            "a change of the backends"
        )  # guards whole and failure of the parts, and the lines
        self._put_end = 0
        self._marks: dict[str, int] = {}
        self._replaying = True
        self._is_deleted = is_deleted
        self._count_in_checkpoint()

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return False: a combined store is made of backends, not found by itself."""
        _ = paths
        return False

    # ---- parts that fail

    def _live(self) -> list[BackendReplica]:
        return [part for part in self._parts if part.failure is None]

    def _attempt(self, part: BackendReplica, what: str, call: Callable[[], _T]) -> _T | None:
        """Call; detach the part if that fails and the store can do without it.

        Raises:
            StoreError: it cannot, or the line that says so cannot be written.
        """
        try:
            return call()
        except (StoreClosedError, StoreLockedError):
            raise
        except StoreError as exc:
            if part.needed:
                raise
            self._detach(part, what, exc)
            return None

    def _detach(self, part: BackendReplica, what: str, exc: StoreError) -> None:
        with self._lock.entry():
            if part.failure is not None:
                return
            if isinstance(exc, QueueGapError):
                part.whole = 0  # it lacks what it claimed to have
            part.note_behind(part.whole)
            part.failure = exc
            self._count_in_checkpoint()
        _LOG.warning(
            "the %s queues are detached, whole up to phy offset %d: cannot %s: %s",
            part.name, part.whole, what, exc,
        )  # fmt: skip

    def _count_in_checkpoint(self) -> None:
        """Let the checkpoint speak of the parts that it is for only while they are kept."""
        self.counts_in_checkpoint = any(part.store.counts_in_checkpoint for part in self._live())

    @property
    def detached(self) -> dict[str, Exception]:
        """Return the parts that are not kept any more until the next open, and why."""
        return {part.name: part.failure for part in self._parts if part.failure is not None}

    @property
    def behind(self) -> dict[str, int]:
        """Return up to which phy offset each part is whole that is, or was when opened, behind."""
        return {part.name: part.behind for part in self._parts if part.behind is not None}

    # ---- opening

    def load(self) -> Self:
        """Open all; if one that is needed fails, those that were opened are closed again."""
        opened: list[BackendReplica] = []
        try:
            for part in self._parts:
                self._attempt(part, "open them", part.store.load)
                opened.append(part)
            self._read_light_from(light_home(self._parts, self.roles, self._lines))
        except BaseException:
            for part in opened:
                part.store.close()
            raise
        return self

    def _read_light_from(self, home: BackendReplica | None) -> None:
        if home is None:
            return
        self._router.light = home.store
        self.lmq_needs_multi_dispatch = home.store.lmq_needs_multi_dispatch

    def recover(self) -> None:
        """Recover all, and compare how far they have come."""
        for part in self._live():
            self._attempt(part, "recover them", part.recover)
        if not self._lines.alike:
            self._compare()
        marks = {part.name: part.whole for part in self._live()}
        newest, low = max(marks.values(), default=0), max(self.context.log.min_phy_offset(), 0)
        for part in self._live():
            # Where the log has no records any more that it lacks, they are made up for at the end.
            if part.behind is None and part.whole < newest and part.whole <= low:
                part.note_behind(part.whole)
        self._marks = marks

    def _compare(self) -> None:
        """Let the log fill what a part lacks though it claims to be whole.

        RocketMQ switches double write on without the history, and says nothing.

        Raises:
            RefusedStoreError: read-only, and the part that the settings prefer lacks units.
        """
        live = self._live()
        if len(live) == 1:
            return
        whole = [part for part in live if part.behind is None]
        if self._router.light is None:
            self._read_light_from(diverged_replica(whole, self.roles, self._is_deleted))
        for ahead in whole:  # what another one has may have been deleted since
            late = live[1 - live.index(ahead)]
            if not self.context.read_only:
                note = partial(late.note_behind, 0)
                compare = partial(backfill, late, ahead, self._is_deleted, note)
                self._attempt(late, "compare them", compare)
            elif late.store is self._read and late.name == self.context.config.preferred_backend:
                refuse_lack(late, ahead, self._is_deleted, self.context.paths.root)

    def check_topic(self, topic: str) -> None:
        """Refuse what any of them cannot hold, also one that was detached: it is to catch up."""
        light = self._router.light
        if light is not None and light.name in self.detached and is_light(topic):
            raise IllegalMessageError(
                f"the {light.name} queues, which may have light queues, cannot be opened"
            )
        for part in self._parts:
            if part.accepts(topic):
                part.store.check_topic(topic)

    def dispatch_from_phy_offset(self) -> int:
        """Return the smallest of all; read-only, where none is brought up, of those needed."""
        read_only = self.context.read_only
        return min(self._marks[part.name] for part in self._live() if part.needed or not read_only)

    def damaged_queues(self) -> Sequence[QueueDamage]:
        """Return those of all parts."""
        return [each for part in self._live() for each in part.store.damaged_queues()]

    def damage_is_settled(self) -> None:
        """Tell all."""
        for part in self._live():
            part.store.damage_is_settled()

    def watermarks(self) -> dict[str, int]:
        """Return how far each part had come when it was opened."""
        return {part.name: self._marks[part.name] for part in self._live()}

    # ---- writing

    @changing
    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Put into all; the restarts are those of the store that is read."""
        restarts: list[QueueRestart] = []
        for part in self._live():
            has = self._marks[part.name] if self._replaying else 0
            if 0 < batch.end_phy_offset <= has:
                continue  # it has all of them
            put = partial(part.store.put_batch, part.choose(batch, has))
            done = self._attempt(part, "put units", put)
            if part.store is self._read:
                restarts = done or []
        self._put_end = max(self._put_end, batch.end_phy_offset)
        return restarts

    @losing
    def truncate_dirty(self, phy_offset: int) -> int:
        """Truncate all; return the largest number of queues cut."""
        most = 0
        for part in self._live():
            cut = self._attempt(part, "cut them", partial(part.store.truncate_dirty, phy_offset))
            most = max(most, cut or 0)
            with self._lock.entry():
                part.whole = min(part.whole, phy_offset)
                if part.behind is not None and part.behind > phy_offset:
                    part.note_behind(phy_offset)
        self._put_end = min(self._put_end, phy_offset)
        return most

    def catch_up(self) -> bool:
        """Bring up those that were behind; their lines stay until ``allow_expiry``."""
        live = self._live()
        late = [part for part in live if part.behind is not None]
        ahead = [part for part in live if part.behind is None]
        for part in late if ahead else ():
            self._attempt(
                part, "catch up", partial(reconcile_unlogged, part, ahead[0], self._is_deleted)
            )
        if late:
            self.flush()
        return any(part.store.counts_in_checkpoint for part in late if part.failure is None)

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Tell all; those that were behind have been caught up by now, and their lines go."""
        self._replaying = False
        if classes := self.context.config.read_topic_classes:
            self._router.apart = ClassOfTopic(classes, "")
        for part in self._live():
            if part.behind is not None:
                with self._lock.entry():
                    part.note_caught_up()
        for part in self._live():
            self._attempt(part, "expire units", partial(part.store.allow_expiry, min_phy_offset))
        if len(self._live()) == len(self._parts) > 1:
            self._lines.note_alike()

    @changing
    def clean_expired(
        self, min_phy_offset: int, expired: Mapping[QueueKey, int] | None = None
    ) -> int:
        """Clean all; return the sum."""
        done = [
            self._attempt(
                part, "clean them", partial(part.store.clean_expired, min_phy_offset, expired)
            )
            for part in self._live()
        ]
        return sum(count or 0 for count in done)

    @changing
    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Restore in all where the queue has no units and ends before, as a crash may leave it."""
        for part in self._live():
            if not part.accepts(topic):
                continue
            low, high = part.store.queue(topic, queue_id).ends()
            if low == high < queue_offset:
                restore = partial(part.store.restore_end, topic, queue_id, queue_offset)
                self._attempt(part, "restore the end of a queue", restore)

    @losing
    def delete_topics(self, topics: Sequence[str]) -> None:
        """Delete from all; from one that was detached when it catches up."""
        for part in self._live():
            self._attempt(part, "delete topics", partial(part.store.delete_topics, topics))

    @losing
    def delete_queue(self, topic: str, queue_id: int) -> None:
        """Delete from all."""
        for part in self._live():
            delete = partial(part.store.delete_queue, topic, queue_id)
            self._attempt(part, "delete a queue", delete)

    def flush(self, least_pages: int = 0) -> None:
        """Flush all."""
        end = self._put_end
        for part in self._live():
            self._attempt(part, "flush them", partial(part.store.flush, least_pages))
            if not least_pages:
                with self._lock.entry():
                    if part.failure is None:
                        part.whole = max(part.whole, end)

    def next_offset(self, topic: str, queue_id: int) -> int:
        """Return the largest of all that have the queue: no part may lose a unit to a put."""
        return max(
            part.store.queue(topic, queue_id).max_offset()
            for part in self._live()
            if part.accepts(topic)
        )

    # ---- reading: one backend answers, see ``ReadRouter``

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return that of the backend that answers for ``topic``."""
        router = self._router
        if router.apart is not None and router.apart.of(topic):
            return QueueApart(router, self.context, topic, queue_id)
        return router.reader(topic).queue(topic, queue_id)

    def queues(
        self, topic: str | None = None, after: QueueKey | None = None, prefix: str = ""
    ) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read; light queues, if they lie apart, last."""
        return self._router.queues(topic, after, prefix)

    def spans(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueSpan]:
        """Yield those of the store that is read; light queues may be another one's."""
        light = self._router.light
        return super().spans(topic, after) if light else self._read.spans(topic, after)

    def unit_timestamps(self, units: Iterable[tuple[QueueKey, int]]) -> Iterator[int]:
        """Ask the store that is read for all at once, unless some are another one's."""
        router = self._router
        apart = router.light is not None or router.apart is not None
        return super().unit_timestamps(units) if apart else self._read.unit_timestamps(units)

    def queues_estimate(self) -> int | None:
        """Ask the store that is read; light queues apart count where those are more."""
        asked = (each.queues_estimate() for each in (self._read, self._router.light) if each)
        return max((count for count in asked if count is not None), default=None)

    @property
    def units_per_file(self) -> int:
        """Ask the store that is read."""
        return self._read.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return ``BATCH`` if any part says so, else ask the store that is read."""
        kinds = {part.store.queue_type(topic) for part in self._live()}
        if QueueType.BATCH in kinds:
            return QueueType.BATCH
        return self._router.reader(topic).queue_type(topic)

    def alike(self, topic: str) -> tuple[ConsumeQueueStore, ConsumeQueueStore] | None:
        """Return the backend that answers for ``topic`` and one that must answer alike, if any."""
        return self._router.alike(topic)

    # ---- about itself

    @property
    def selections(self) -> list[str]:
        """Return the selections that a topic is in all of which all parts get, see ``selects``."""
        live = self._live()
        given = [self._lines.covers(part.name) for part in live]
        given += [part.selection for part in live if part.selection == NO_LIGHT]
        return [each for each in given if each is not None]

    def total_size_bytes(self) -> int:
        """Return the sum, without those that were detached."""
        return sum(part.store.total_size_bytes() for part in self._live())

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield the findings of all that were not detached."""
        for part in self._live():
            yield from part.store.check_files()

    def read_through(self, progress: Progress = noop) -> None:
        """Read all that were not detached."""
        for part in self._live():
            part.store.read_through(progress)

    def parts(self) -> Sequence[ConsumeQueueStore]:
        """Return the stores that are kept, the one that is read first."""
        return [part.store for part in self._live()]

    def locks(self) -> Sequence[CheckedLock]:
        """Return its own and those of all."""
        return [self._lock, *(lock for part in self._parts for lock in part.store.locks())]

    def describe(self) -> dict[str, object]:
        """Return the facts of all, each label with its backend's name."""
        roles = self.roles
        facts: dict[str, object] = {"offsets from": roles.assign}
        if given := self.context.config.read_topics:
            facts["topics read apart"] = given
        if (light := self._router.light) is not None:
            asked = "" if roles.light_alone else ", though the settings do not say so"
            facts["light queues in"] = f"{light.name} alone{asked}"
        for part in self._parts:
            for label, value in part.describe().items():
                facts[f"{part.name} {label}"] = value
        return facts

    def stats(self) -> Sequence[QueueStat]:
        """Return the numbers of all, and how each part stands."""
        return [each for part in self._parts for each in part.stats()]

    def written_bytes(self) -> Mapping[str, int]:
        """Return the sums of all parts that are in use."""
        found: Counter[str] = Counter()
        for part in self._live():
            found.update(part.store.written_bytes())
        return found

    def close(self) -> None:
        """Close all, also if one fails or is cut short; of one that is needed that is raised."""
        close_all(self._parts, self._close_failed)

    def _close_failed(self, part: BackendReplica, exc: Exception) -> Exception | None:
        """Return what is to be raised."""
        if part.failure is not None:
            return None  # what went wrong with it has been noted
        if part.needed or not isinstance(exc, StoreError):
            return exc
        try:
            self._detach(part, "close them", exc)
        except StoreError as unwritten:
            return unwritten
        return None
