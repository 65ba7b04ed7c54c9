"""CombinedConsumeQueueStore: several backends kept alike, one of them read.

Every write goes to all parts, first to those that are read or assign offsets. If such a one fails
the store fails. Any other part that fails is *set aside*: a durable line says up to which phy
offset it is surely whole, it is not touched again, and the next open catches it up by replaying the
log from there. The line goes when the part is caught up and durably so.

Source: RocketMQ ``CombineConsumeQueueStore``. Unlike it, nothing is ever initialised anew where
two backends disagree: that would hide history.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Self, TypeVar

from store.errors import RefusedStoreError, StoreClosedError, StoreError, StoreLockedError
from store.paths import StorePaths
from store.queue.consume_queue_store import (
    ConsumeQueueStore,
    QueueFinding,
    QueueRestart,
    QueueStat,
    QueueStoreContext,
    QueueType,
)
from store.queue.part import Lines, Part, Roles, selects
from store.queue.units import CqUnit, QueueKey, UnitBatch, UnitBlock
from store.queue.verify import Verify
from store.record.message import LMQ_PREFIX

_LOG = logging.getLogger(__name__)
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
        lines: Lines,
    ) -> None:
        """Make the parts, not yet loaded; ``roles`` names some of them."""
        super().__init__(context)
        self.roles = roles
        self._lines = lines
        made = [Part(kind, context, lines, roles) for kind in kinds]
        self._parts = sorted(made, key=lambda part: (part.name != roles.read, not part.needed))
        by_name = {part.name: part.store for part in made}
        self._read, self._assign = by_name[roles.read], by_name[roles.assign]
        self._light = by_name[roles.light] if roles.light else None
        self.lmq_needs_multi_dispatch = self._read.lmq_needs_multi_dispatch
        self._lock = threading.Lock()  # guards whole and failure of the parts, and the lines
        self._put_end = 0
        self._marks: dict[str, int] = {}
        self._replaying = True
        self.is_deleted: Callable[[str, int], bool] = lambda _topic, _phy_offset: False
        """Whether the record of a topic at a phy offset belongs to a deleted life of it."""
        self._count_in_checkpoint()

    @classmethod
    def present(cls, paths: StorePaths) -> bool:
        """Return False: a combined store is made of backends, not found by itself."""
        _ = paths
        return False

    # ---- parts that fail

    def _live(self) -> list[Part]:
        return [part for part in self._parts if part.failure is None]

    def _attempt(self, part: Part, what: str, call: Callable[[], _T]) -> _T | None:
        """Call; set the part aside if that fails and the store can do without it.

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
            self._set_aside(part, what, exc)
            return None

    def _set_aside(self, part: Part, what: str, exc: StoreError) -> None:
        with self._lock:
            if part.failure is not None:
                return
            if part.cut is not None:
                part.whole = min(part.whole, part.cut)
            self._note_behind(part, part.whole)
            part.failure = exc
            self._count_in_checkpoint()
        _LOG.warning(
            "the %s queues are set aside, whole up to phy offset %d: cannot %s: %s",
            part.name, part.whole, what, exc,
        )  # fmt: skip

    def _note_behind(self, part: Part, phy_offset: int) -> None:
        if not self.context.read_only:
            self._lines.note_behind(part.name, phy_offset)
        part.behind = phy_offset

    def _count_in_checkpoint(self) -> None:
        """Let the checkpoint speak of the parts that it is for only while they are kept."""
        self.counts_in_checkpoint = any(part.store.counts_in_checkpoint for part in self._live())

    @property
    def set_aside(self) -> dict[str, Exception]:
        """Return the parts that are not kept any more until the next open, and why."""
        return {part.name: part.failure for part in self._parts if part.failure is not None}

    @property
    def behind(self) -> dict[str, int]:
        """Return up to which phy offset each part is whole that is, or was when opened, behind."""
        return {part.name: part.behind for part in self._parts if part.behind is not None}

    # ---- opening

    def load(self) -> Self:
        """Open all; if one that is needed fails, those that were opened are closed again."""
        opened: list[Part] = []
        try:
            for part in self._parts:
                self._attempt(part, "open them", part.store.load)
                opened.append(part)
        except BaseException:
            for part in opened:
                part.store.close()
            raise
        return self

    def recover(self) -> None:
        """Recover all, and compare how far they have come."""
        for part in self._live():
            self._attempt(part, "recover them", partial(self._recover, part))
        marks = {part.name: part.whole for part in self._live()}
        newest, low = max(marks.values(), default=0), max(self.context.log.min_phy_offset(), 0)
        for part in self._live():
            # Where the log has no records any more that it lacks, they are made up for at the end.
            if part.behind is None and part.whole < newest and part.whole <= low:
                self._note_behind(part, part.whole)
        self._marks = marks

    def _recover(self, part: Part) -> None:
        store = part.store
        store.recover()
        if part.cut is not None and not self.context.read_only:
            store.truncate_dirty(part.cut)
        limits = [at for at in (part.behind, part.cut) if at is not None]
        part.began_empty = next(store.queues(), None) is None
        part.whole = min([store.dispatch_from_phy_offset(), *limits])
        if self.context.read_only:
            return
        had = self._lines.covers(part.name)
        if had not in {None, part.selection}:
            part.whole = 0
            self._note_behind(part, 0)
        self._lines.note_covers(part.name, part.selection)

    def check_topic(self, topic: str) -> None:
        """Refuse what any of them cannot hold, also one that was set aside: it is to catch up."""
        for part in self._parts:
            if part.takes(topic):
                part.store.check_topic(topic)

    def dispatch_from_phy_offset(self) -> int:
        """Return the smallest of all; read-only, where none is brought up, of those needed."""
        read_only = self.context.read_only
        return min(self._marks[part.name] for part in self._live() if part.needed or not read_only)

    def watermarks(self) -> dict[str, int]:
        """Return how far each part had come when it was opened."""
        return {part.name: self._marks[part.name] for part in self._live()}

    # ---- writing

    def put_batch(self, batch: UnitBatch) -> list[QueueRestart]:
        """Put into all; the restarts are those of the store that is read."""
        restarts: list[QueueRestart] = []
        for part in self._live():
            if self._replaying and 0 < batch.end_phy_offset <= self._marks[part.name]:
                continue  # it has all of them
            put = partial(part.store.put_batch, part.choose(batch))
            done = self._attempt(part, "put units", put)
            if part.store is self._read:
                restarts = done or []
        self._put_end = max(self._put_end, batch.end_phy_offset)
        return restarts

    def truncate_dirty(self, phy_offset: int) -> int:
        """Truncate all; return the largest number of queues cut."""
        most = 0
        for part in self._live():
            cut = self._attempt(part, "cut them", partial(part.store.truncate_dirty, phy_offset))
            most = max(most, cut or 0)
            with self._lock:
                part.whole = min(part.whole, phy_offset)
                if part.behind is not None and part.behind > phy_offset:
                    self._note_behind(part, phy_offset)
        self._put_end = min(self._put_end, phy_offset)
        return most

    def allow_expiry(self, min_phy_offset: int) -> None:
        """Tell all; those that were behind have been caught up by now, which is made durable."""
        self._replaying = False
        late = [part for part in self._live() if part.behind is not None]
        if late:
            self._catch_up(late)
        for part in self._live():
            self._attempt(part, "expire units", partial(part.store.allow_expiry, min_phy_offset))

    def _catch_up(self, late: Sequence[Part]) -> None:
        """Give parts that were behind what no record of the log tells, and remove their lines."""
        ahead = [part for part in self._live() if part.behind is None]
        for part in late if ahead else ():
            self._attempt(part, "catch up", partial(_even, part, ahead[0], self.is_deleted))
        self.flush()
        for part in late:
            if part.failure is None:
                with self._lock:
                    self._lines.caught_up(part.name)
                    part.behind = part.cut = None

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

    def restore_end(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Restore in all that have no such queue."""
        for part in self._live():
            if part.takes(topic) and not part.store.max_offset(topic, queue_id):
                restore = partial(part.store.restore_end, topic, queue_id, queue_offset)
                self._attempt(part, "restore the end of a queue", restore)

    def delete_topic(self, topic: str) -> None:
        """Delete from all; from one that was set aside when it catches up."""
        for part in self._live():
            self._attempt(part, "delete a topic", partial(part.store.delete_topic, topic))

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
                with self._lock:
                    if part.failure is None:
                        part.whole = max(part.whole, end)

    # ---- reading

    def _reader(self, topic: str) -> ConsumeQueueStore:
        return self._light if self._light and topic.startswith(LMQ_PREFIX) else self._read

    def queues(self, topic: str | None = None, after: QueueKey | None = None) -> Iterator[QueueKey]:
        """Yield the queues of the store that is read."""
        return self._read.queues(topic, after)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Ask the store that is read."""
        return self._reader(topic).max_offset(topic, queue_id)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Ask the store that is read."""
        return self._reader(topic).min_offset(topic, queue_id)

    def read_units(self, topic: str, queue_id: int, queue_offset: int, max_count: int) -> UnitBlock:
        """Ask the store that is read."""
        return self._reader(topic).read_units(topic, queue_id, queue_offset, max_count)

    def unit_timestamp(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Ask the store that is read."""
        return self._reader(topic).unit_timestamp(topic, queue_id, queue_offset)

    def iterate(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[CqUnit]:
        """Ask the store that is read."""
        return self._reader(topic).iterate(topic, queue_id, queue_offset)

    @property
    def units_per_file(self) -> int:
        """Ask the store that is read."""
        return self._read.units_per_file

    def queue_type(self, topic: str) -> QueueType:
        """Return ``BATCH`` if any part says so, else ask the store that is read."""
        kinds = {part.store.queue_type(topic) for part in self._live()}
        return QueueType.BATCH if QueueType.BATCH in kinds else self._read.queue_type(topic)

    def resolve_tags_code(self, topic: str, queue_id: int, tags_code: int) -> int | None:
        """Ask the store that is read."""
        return self._reader(topic).resolve_tags_code(topic, queue_id, tags_code)

    # ---- offsets for the writer

    def _assigner(self, topic: str) -> ConsumeQueueStore:
        return self._light if self._light and topic.startswith(LMQ_PREFIX) else self._assign

    def assign_queue_offset(self, topic: str, queue_id: int) -> int:
        """Ask the store that assigns offsets."""
        return self._assigner(topic).assign_queue_offset(topic, queue_id)

    def increase_queue_offset(self, topic: str, queue_id: int, count: int) -> None:
        """Tell the store that assigns offsets."""
        self._assigner(topic).increase_queue_offset(topic, queue_id, count)

    @property
    def assigned_queues(self) -> int:
        """Ask those that assign offsets."""
        return sum(store.assigned_queues for store in {self._assign, self._light or self._assign})

    def forget_queue_offsets(self, topic: str | None = None) -> None:
        """Tell those that assign offsets."""
        for store in {self._assign, self._light or self._assign}:
            store.forget_queue_offsets(topic)

    # ---- about itself

    def comparison(
        self,
        *,
        still: Callable[[], AbstractContextManager[object]] = nullcontext,
        most_examples: int = 20,
        progress: Callable[[int], object] = bool,
    ) -> Verify:
        """Return a comparison of the part that is read with the other one, to be run.

        Raises:
            RefusedStoreError: only one part is in use.
        """
        parts = self._live()
        if len(parts) == 1:
            raise RefusedStoreError(
                f"only the {parts[0].name} queues are kept: nothing to compare them with",
                path=self.context.paths.root,
            )
        given = self._lines.covers(parts[1].name)
        return Verify(
            parts[0].store, parts[1].store, self.context.log, takes=partial(selects, given),
            still=still, most_examples=most_examples, progress=progress,
        )  # fmt: skip

    def total_size_bytes(self) -> int:
        """Return the sum, without those that were set aside."""
        return sum(part.store.total_size_bytes() for part in self._live())

    def check_files(self) -> Iterator[QueueFinding]:
        """Yield the findings of all that were not set aside."""
        for part in self._live():
            yield from part.store.check_files()

    def parts(self) -> Sequence[ConsumeQueueStore]:
        """Return the stores that are kept, the one that is read first."""
        return [part.store for part in self._live()]

    def describe(self) -> dict[str, object]:
        """Return the facts of all, each label with its backend's name."""
        roles = self.roles
        facts: dict[str, object] = {"offsets from": roles.assign}
        if roles.light:
            facts["light queues from"] = roles.light
        for part in self._parts:
            if part.selection is not None:
                facts[f"{part.name} gets only"] = part.selection
            if part.failure is not None:
                facts[f"{part.name} set aside"] = (
                    f"whole up to phy offset {part.whole}: {part.failure}"
                )
                continue
            if part.behind is not None:
                facts[f"{part.name} behind"] = f"whole up to phy offset {part.behind}"
            for label, value in part.store.describe().items():
                facts[f"{part.name} {label}"] = value
        return facts

    def stats(self) -> Sequence[QueueStat]:
        """Return the numbers of all, and how each part stands."""
        found: list[QueueStat] = []
        for part in self._parts:
            failed = part.failure is not None
            found.append(QueueStat("queue_backend_set_aside", part.name, int(failed)))
            found.append(QueueStat("queue_backend_whole_phy_offset", part.name, part.whole))
            found += () if failed else part.store.stats()
        return found

    def close(self) -> None:
        """Close all, also if one fails; the first failure of one that is needed is raised."""
        failure: BaseException | None = None
        for part in self._parts:
            try:
                part.store.close()
            except Exception as exc:  # noqa: BLE001 - the others must be closed first
                failure = failure or self._close_failed(part, exc)
        if failure is not None:
            raise failure

    def _close_failed(self, part: Part, exc: Exception) -> Exception | None:
        """Return what is to be raised."""
        if part.failure is not None:
            return None  # what went wrong with it has been noted
        if part.needed or not isinstance(exc, StoreError):
            return exc
        try:
            self._set_aside(part, "close them", exc)
        except StoreError as unwritten:
            return unwritten
        return None


def _even(late: Part, ahead: Part, is_deleted: Callable[[str, int], bool]) -> None:
    """Take over, after a replay, what the log cannot tell.

    That is the next offsets of queues that are wholly expired, and that queues were deleted. Of
    what ``late`` alone has, that goes which came from this replay, for it began with nothing, and
    that which a line of ours explains; nothing else.
    """
    for key in ahead.store.queues():
        end = ahead.store.max_offset(*key)
        if not late.takes(key.topic) or end <= late.store.max_offset(*key):
            continue
        if not ahead.has_live_units(*key) and not late.has_live_units(*key):
            late.store.restore_end(*key, end)
    gone = [
        key
        for key in (late.store.queues() if late.was_behind or late.began_empty else ())
        if not ahead.store.max_offset(*key) and _is_gone(late, key, is_deleted)
    ]
    for key in gone:
        _LOG.warning("queue %d of %s had been deleted", key.queue_id, key.topic)
        late.store.delete_queue(*key)


def _is_gone(late: Part, key: QueueKey, is_deleted: Callable[[str, int], bool]) -> bool:
    """Return whether nothing of a queue lives on that only ``late`` has."""
    if late.began_empty or not late.has_live_units(*key):
        return True
    end = late.store.max_offset(*key)
    last = next(late.store.iterate(*key, end - 1), None)
    return last is not None and is_deleted(key.topic, last.phy_offset)
