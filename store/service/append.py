"""Appender: offsets, log and dispatch of new records as one step.

The one way into the log for new messages: whoever puts brings encoded records and gets places back.
From a record's first byte to its unit's being in a batch either all of it happens or the store
fails, also where an exception comes between two lines (``Section``).

Source: RocketMQ ``CommitLog.asyncPutMessage``, ``MultiDispatch``.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from store.errors import DiskFullError, IllegalMessageError
from store.log.commit_log import Appended, CommitLog
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.topic_hold import TopicHeldError
from store.record.encoder import EncodedRecord, is_queued
from store.service.dispatch import Dispatcher
from store.service.light_quota import LightQuota
from store.service.running_state import RunningState

_REFUSALS = (DiskFullError, IllegalMessageError)
"""What the log raises before it has written a byte of a record."""
_LIGHT_ID = 0
_LOOK_AGAIN_SECONDS = 0.1
A = TypeVarTuple("A")
R = TypeVar("R")


class Appender:
    """Appends to one store; any thread may call, appends are one at a time.

    Every method raises ``DiskFullError`` or ``IllegalMessageError`` where nothing was appended, and
    what ``RunningState.check_writable`` raises; any other error has failed the store.
    """

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        dispatcher: Dispatcher,
        state: RunningState,
        quota: LightQuota,
    ) -> None:
        self._log = log
        self._queues = queues
        self._dispatcher = dispatcher
        self._lock = dispatcher.append_lock
        self._state = state
        self._section = dispatcher.appending
        self.quota = quota

    def one(self, record: EncodedRecord) -> tuple[int, Appended]:
        """Append one record; return its queue offset and its place."""
        return self._step(self._one, record)

    def many(
        self, records: Sequence[EncodedRecord], *, whole: bool
    ) -> tuple[list[int], list[Appended]]:
        """Append ``records``, or the first of them if the disk is full; return offsets, places.

        ``whole``: all of them go into one file, or none.
        """
        return self._step(self._many, records, whole)

    def light(
        self, names: Sequence[str], encode: Callable[[Sequence[int]], EncodedRecord]
    ) -> tuple[int, Appended]:
        """Append a queued record that is in light queues too; ``encode`` gets its offsets there.

        Raises:
            LightQuotaError: it would make more light queues than there may be.
        """
        return self._step(self._light, names, encode)

    def _step(self, step: Callable[[*A], R], *given: *A) -> R:
        """Take one step under the lock; it begins the section with its first byte, and ends it."""
        section = self._section
        while True:
            try:
                with self._lock:
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

    def _one(self, record: EncodedRecord) -> tuple[int, Appended]:
        queues, queued = self._queues, is_queued(record.sys_flag)
        topic, queue_id = record.topic, record.queue_id
        queue_offset = queues.assign_queue_offset(topic, queue_id) if queued else 0
        self._section.begun = True
        appended = self._log.append(record, queue_offset)
        if queued:
            queues.increase_queue_offset(topic, queue_id, 1)
        self._dispatcher.hot(record, queue_offset, appended)
        self._section.begun = False
        return queue_offset, appended

    def _many(
        self,
        records: Sequence[EncodedRecord],
        whole: bool,  # noqa: FBT001
    ) -> tuple[list[int], list[Appended]]:
        queues = self._queues
        offsets, following = self._assign(records)
        self._section.begun = True
        appended = self._log.append_list(records, offsets, whole=whole)
        if len(appended) < len(records):
            records = records[: len(appended)]
            offsets, following = self._assign(records)
        for key, end in following.items():
            queues.increase_queue_offset(*key, end - queues.assign_queue_offset(*key))
        self._dispatcher.hot_list(records, offsets, appended)
        self._section.begun = False
        return offsets, appended

    def _light(
        self, names: Sequence[str], encode: Callable[[Sequence[int]], EncodedRecord]
    ) -> tuple[int, Appended]:
        queues = self._queues
        light = [queues.assign_queue_offset(name, _LIGHT_ID) for name in names]
        self.quota.check(light.count(0))
        record = encode(light)
        key = (record.topic, record.queue_id)
        queue_offset = queues.assign_queue_offset(*key)
        self._section.begun = True
        appended = self._log.append(record, queue_offset)
        queues.increase_queue_offset(*key, 1)
        for name in names:
            queues.increase_queue_offset(name, _LIGHT_ID, 1)
        self.quota.count(light.count(0))
        self._dispatcher.hot(record, queue_offset, appended)
        self._section.begun = False
        return queue_offset, appended

    def _refuse(self) -> None:
        """Say why nothing may be appended; a disk that filled meanwhile lets this one in."""
        self._section.check()
        self._state.check_writable()

    def _assign(
        self, records: Sequence[EncodedRecord]
    ) -> tuple[list[int], dict[tuple[str, int], int]]:
        """Return the queue offset of each record, and the next one of each queue among them."""
        offsets: list[int] = []
        following: dict[tuple[str, int], int] = {}
        for record in records:
            if not is_queued(record.sys_flag):
                offsets.append(0)
                continue
            key = (record.topic, record.queue_id)
            offset = following.get(key)
            if offset is None:
                offset = self._queues.assign_queue_offset(*key)
            offsets.append(offset)
            following[key] = offset + 1
        return offsets, following
