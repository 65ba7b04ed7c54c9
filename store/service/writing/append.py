"""Appender: assigns offsets, appends to the log and adds to the dispatch, as one step.

The only way into the log, with two entry points: a put brings encoded records and gets their
positions; a follower of another store brings bytes of its log, which have positions. From a
record's first byte until its unit is in a batch, either all steps are done or the store fails, also
if an exception occurs between two lines (``CriticalSection``).

Source: RocketMQ ``CommitLog.asyncPutMessage``, ``MultiDispatch``.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from cqstore.store.errors import DiskFullError, IllegalMessageError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.light_home import is_light
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.encoding_rules import EncodingRules
from cqstore.store.record.properties import DispatchProperties
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.dispatching.queue_offsets import Queue
from cqstore.store.service.dispatching.topic_hold import TopicHeldError
from cqstore.store.service.results import PutMessageResult
from cqstore.store.service.runtime.running_state import RunningState
from cqstore.store.service.writing.encoded import Encoded
from cqstore.store.service.writing.fast_put import PutFastPath, fast_put
from cqstore.store.service.writing.light_quota import LightQuota
from cqstore.store.settings.config import StoreConfig

_REFUSALS = (DiskFullError, IllegalMessageError)
"""Errors that the log raises before it has written a byte of a record."""
_LIGHT_ID = 0
_LOOK_AGAIN_SECONDS = 0.1
A = TypeVarTuple("A")
R = TypeVar("R")


class Appender:
    """Appends to one store; any thread may call, appends are one at a time.

    Every method raises ``DiskFullError`` or ``IllegalMessageError`` if nothing was appended, and
    the errors of ``RunningState.check_writable``; any other error has failed the store.
    """

    def __init__(
        self, log: CommitLog, pending: Pending, state: RunningState, quota: LightQuota
    ) -> None:
        self._log = log
        self._pending = pending
        self._offsets = pending.offsets
        self._owner, self._lock = pending.owner, pending.lock
        self._is_inside = pending.owner.is_mine
        self._state = state
        self._section = pending.appending
        self.quota = quota

    def fast_put(
        self,
        config: StoreConfig,
        rules: EncodingRules,
        dispatcher: Dispatcher,
        *,
        alone: bool,
    ) -> PutFastPath:
        """Return the fast path for plain messages; it respects the lock itself."""
        return fast_put(config, rules, self._log, dispatcher, self._state, alone=alone)

    def encoded(self, records: Encoded, *, whole: bool) -> list[PutMessageResult]:
        """Append ``records``, or the first of them if the disk is full; return their results.

        ``whole``: all of them are written into one file, or none.
        """
        records.sum()  # takes long, so it runs without the lock
        return self._step(self._encoded, records, whole)

    def light(
        self,
        topic: str,
        names: Sequence[str],
        records: Encoded,
        encode: Callable[[Sequence[int]], DispatchProperties],
    ) -> PutMessageResult:
        """Append a queued record that is also in light queues; return the result.

        ``encode`` is called with its offsets there, adds it alone to ``records``, and returns the
        properties that dispatch needs.

        Raises:
            LightQuotaError: the limit of light queues would be exceeded.
        """
        return self._step(self._light, topic, names, records, encode)

    def inner_batch(
        self, queue: Queue, size: int, records: Encoded, encode: Callable[[int], object]
    ) -> PutMessageResult:
        """Append a record of ``size`` messages to a batch queue; return the result.

        ``encode`` is called with the offset of its first message, and adds it alone to ``records``.

        Raises:
            IllegalMessageError: the topic has no batch queues, or raised by ``encode``.
        """
        return self._step(self._inner_batch, queue, size, records, encode)

    def raw(self, phy_offset: int, data: bytes, rules: ScanRules) -> int:
        """Append the complete records at the start of ``data``, which have their positions already.

        Returns the end of the log: after them, or before those for which a full disk has no space.

        Raises:
            RefusedStoreError: they do not continue the log; nothing was appended.
            CorruptionError: no valid record where one should start, or a record whose queue would
                have a gap; nothing was appended.
        """
        return self._step(self._raw, phy_offset, data, rules)

    def _step(self, step: Callable[[*A], R], *given: *A) -> R:
        """Run one step under the lock; it begins the section with its first byte, and ends it."""
        section = self._section
        while True:
            try:
                if self._is_inside():  # ``entry``, with one frame less
                    self._owner.entry()
                with self._owner, self._lock:
                    if section.begun or self._state.unwritable:
                        self._refuse()
                    try:
                        return step(*given)
                    except BaseException as exc:
                        if section.begun:
                            if isinstance(exc, _REFUSALS):
                                section.begun = False
                            else:
                                self._state.fail(exc)
                        raise
            except TopicHeldError as held:  # a topic is being deleted: nothing was appended
                held.hold.wait(_LOOK_AGAIN_SECONDS)

    def _light(
        self,
        topic: str,
        names: Sequence[str],
        records: Encoded,
        encode: Callable[[Sequence[int]], DispatchProperties],
    ) -> PutMessageResult:
        """Append a message for light queues, with its offsets in them.

        Raises:
            IllegalMessageError: the limit of light queues is exceeded, or the record is too large.
        """
        assign = self._offsets.assign
        queues = [(name, _LIGHT_ID) for name in names]
        light = [assign(queue) for queue in queues]
        made = light.count(0)
        self.quota.check(made)
        properties = encode(light)
        records.sum()
        for queue in records.unassigned():
            self._offsets.assign_plain(queue)
        results: list[PutMessageResult] = []
        self._section.begun = True
        self._log.append_encoded(records, results, whole=True)
        for queue in queues:
            self._offsets.advance(queue)
        if made:
            self.quota.count(made)
        (result,) = results
        if result.appended is not None:
            self._pending.note_light(topic, properties, result.appended)
        self._section.begun = False
        return result

    def _inner_batch(
        self, queue: Queue, size: int, records: Encoded, encode: Callable[[int], object]
    ) -> PutMessageResult:
        """Append an inner batch; only meanwhile its queue has an offset for any put."""
        offsets = self._offsets
        base = offsets.assign_batch(queue)
        encode(base)
        records.sum()
        results: list[PutMessageResult] = []
        self._section.begun = True
        offsets.next[queue] = base
        try:
            self._log.append_encoded(records, results, whole=True)
        finally:
            del offsets.next[queue]
        (result,) = results
        if result.appended is not None:
            offsets.batch_next[queue] = base + size
            self._pending.units.batch_sizes[result.appended.phy_offset] = size
        self._section.begun = False
        return result

    def _encoded(
        self,
        records: Encoded,
        whole: bool,  # noqa: FBT001
    ) -> list[PutMessageResult]:
        """Append encoded messages; for a first put to a queue, its offset is read before."""
        for queue in records.unassigned():
            self._offsets.assign_plain(queue)
        results: list[PutMessageResult] = []
        self._section.begun = True
        self._log.append_encoded(records, results, whole=whole)
        self._section.begun = False
        return results

    def _raw(self, phy_offset: int, data: bytes, rules: ScanRules) -> int:
        """Append records as a master has them; return the end of the log after that.

        Raises:
            TopicHeldError, QueueGapError, CorruptionError: as for ``check_follow``; nothing was
                appended.
        """
        raw = self._log.raw_records(phy_offset, data, rules)
        batches = self._pending.batches_of(raw.blocks())
        next_offsets = self._offsets.check_follow(batches.units)
        self._section.begun = True
        end = self._log.append_raw(raw)
        if end < raw.end:  # the disk has no space for the next file
            raw = raw.before(end)
            batches = self._pending.batches_of(raw.blocks())
            next_offsets = self._offsets.check_follow(batches.units)
        self._log.count_raw(raw, batches.records, batches.last)
        self.quota.count(batches.units.begins(_is_light))
        self._pending.add_raw(batches, next_offsets)
        self._section.begun = False
        return self._log.max_phy_offset()

    def _refuse(self) -> None:
        """Raise the reason for refusing appends. A disk that filled meanwhile admits this put."""
        self._section.check()
        self._state.check_log_writable()


def _is_light(queue: QueueKey) -> bool:
    return is_light(queue.topic)
