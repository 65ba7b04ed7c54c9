"""Dispatcher: from the log to the queues and the index, by two feeds.

*Hot*: an append hands its unit on in memory; the units wait in a batch until it is full, a reader
asks, or the flush thread comes round, so nothing is read back from the log and no thread competes
with the writer. *Replay*: recovery scans the log. Both end in ``ConsumeQueueStore.put_batch``.

Source: RocketMQ ``DefaultMessageStore.ReputMessageService``,
``CommitLogDispatcherBuildConsumeQueue``, ``MultiDispatchUtils``.
"""

import threading
from collections.abc import Callable, Container, Iterable, Iterator, Sequence

from store.config import StoreConfig
from store.errors import CorruptionError
from store.index.index_batch import TAGS_PREFIX, IndexBatch
from store.index.index_service import IndexService
from store.log.commit_log import Appended
from store.queue.consume_queue_store import ConsumeQueueStore
from store.queue.facts import QueueRestart
from store.queue.units import QUEUE_UNIT, UnitBatch
from store.record.encoder import EncodedRecord, is_queued
from store.record.message import TRANSACTION_MASK, SysFlag
from store.record.properties import DispatchProperties, dispatch_properties
from store.record.scan import ScannedRecord
from store.service.journals.deleted_topics import DeletedTopics
from store.service.record_units import RecordUnits, Unit
from store.service.running_state import RunningState, Section

REPLAY_UNITS = 1 << 18
"""Units that a replay collects before it hands them on: large, so that queues get runs."""
MOST_REPLAY_UNITS = 1 << 20
"""As many where there are many queues; about 250 bytes of memory a unit on RocksDB."""
ASSIGNED_QUEUES = 100_000
"""Queues whose next offset is kept beside the queues; more are read from them again."""
_SLICE_PER_QUEUE = 8
"""Units a queue that a batch waits for before it goes to the queues: one write for several."""
_MAX_SLICE = 1 << 16
_FAR_TOO_MANY = 4
"""Times ``full_at`` from which the writer waits for a batch that another thread hands on."""
_NOTHING, _NO_KEYS = UnitBatch(), IndexBatch()
"""What is being handed on when nothing is."""


class Dispatcher:
    """Feeds the queues and the index of one store.

    ``hot`` is called under ``append_lock``. ``drain`` may be called by any
    thread without it. Locks are taken in this order: ``drain_lock``, then ``append_lock``. From
    taking a batch to its being in queues and index either all of it happens or the store fails.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        config: StoreConfig,
        deleted: DeletedTopics,
        state: RunningState,
    ) -> None:
        self._queues = queues
        self._deleted = deleted
        self._index = index
        self.append_lock = threading.Lock()
        """One append at a time."""
        self.appending = Section(state, "an append")
        """Guards the steps of an append; who takes a batch under the lock finds it whole."""
        self.drain_lock = threading.Lock()
        """One batch at a time goes into the queues, in log order."""
        self._state = state
        self._handing_on = Section(state, "the dispatch of a batch")
        units = RecordUnits(
            config, deleted, queues.queue_type, check_topic=queues.check_topic,
            lmq_needs_multi_dispatch=queues.lmq_needs_multi_dispatch,
        )  # fmt: skip
        self._add = units.add
        self.pending = UnitBatch()
        self._slice = config.dispatch_slice
        self.full_at = config.dispatch_slice
        """Waiting units at which the writer should ``drain``."""
        self._pending_keys = IndexBatch()
        self._indexes_tags = index is not None and config.message_index_tags
        self._pending_last: Appended | None = None
        self._handed, self._handed_keys = _NOTHING, _NO_KEYS
        self._handed_last: Appended | None = None
        self.last_dispatched: Appended | None = None
        """The last record of the log that queues and index have."""
        self.before_store: Callable[[], object] | None = None
        """Called before units become visible: makes the log durable under ``SYNC_FLUSH``."""

    # ---- hot feed

    def hot(self, record: EncodedRecord, queue_offset: int, appended: Appended) -> None:
        """Take over one appended record; the caller holds the append lock."""
        phy_offset, size, timestamp = appended
        pending = self.pending
        properties, sys_flag = record.dispatch, record.sys_flag
        if properties.only_tags:
            if is_queued(sys_flag):
                pending.add(
                    (record.topic, record.queue_id), queue_offset,
                    phy_offset, size, properties.tags_code, timestamp,
                )  # fmt: skip
        else:
            self._add(
                pending.add, record.topic, record.queue_id, queue_offset,
                phy_offset, size, timestamp, sys_flag, properties,
            )  # fmt: skip
        if self._index is not None:
            self._note_keys(
                self._pending_keys, record.topic, sys_flag, properties, phy_offset, timestamp
            )
        pending.end_phy_offset = phy_offset + size
        self._pending_last = appended

    def hot_list(
        self,
        records: Sequence[EncodedRecord],
        queue_offsets: Sequence[int],
        appended: Sequence[Appended],
    ) -> None:
        """Take over a list of appended records, in log order; as ``hot`` each, but in columns."""
        if not all(record.dispatch.only_tags and is_queued(record.sys_flag) for record in records):
            for record, queue_offset, done in zip(records, queue_offsets, appended, strict=True):
                self.hot(record, queue_offset, done)
            return
        phy_offsets, sizes, timestamps = zip(*appended, strict=True)
        self.pending.add_list(
            [(record.topic, record.queue_id) for record in records],
            queue_offsets, phy_offsets, sizes,
            [record.dispatch.tags_code for record in records],
            timestamps,
        )  # fmt: skip
        if self._indexes_tags:
            self._pending_keys.add_tags(
                [record.topic for record in records],
                [record.dispatch.tags for record in records],
                phy_offsets,
                timestamps,
            )
        self._pending_last = last = appended[-1]
        self.pending.end_phy_offset = last.phy_offset + last.size

    def note_last(self, phy_offset: int, size: int, store_timestamp: int) -> None:
        """Take over the last record that recovery met."""
        self.last_dispatched = Appended(phy_offset, size, store_timestamp)

    @property
    def behind(self) -> bool:
        """Return whether a record of the log may not be in its queue yet.

        True also while another thread hands a batch on: a reader has to wait for that one too.
        """
        return bool(self.pending.end_phy_offset) or self._handed is not _NOTHING

    def oldest_waiting(self) -> int:
        """Return the store time, ms, of the first unit that may not be in its queue yet.

        0 if none waits. Any thread; the answer may be of a moment ago.
        """
        for batch in (self._handed, self.pending):
            if batch.units:
                return QUEUE_UNIT.unpack_from(batch.units).store_timestamp
        return 0

    def drain(self) -> None:
        """Hand everything that waits on to the queues; when it returns readers see it.

        Raises:
            StoreError: the backend failed, or an earlier batch did; the store must be opened again.
        """
        with self.drain_lock:
            self._drain()

    def relieve(self) -> None:
        """Hand on what waits, unless another thread is at it and not far too much waits already.

        For the writer, whose next put should not wait for a batch of the flush thread.

        Raises:
            StoreError: as for ``drain``.
        """
        if len(self.pending) < _FAR_TOO_MANY * self.full_at and self.drain_lock.locked():
            return
        self.drain()

    def catch_up(self) -> None:
        """Hand on everything that waits; the caller holds ``drain_lock``, then ``append_lock``.

        While he does, no put and no batch comes in.

        Raises:
            StoreError: as for ``drain``.
        """
        self._take()
        self._hand_on()

    def _drain(self) -> None:
        with self.append_lock:
            self._take()
        self._hand_on()
        if self._queues.assigned_queues > ASSIGNED_QUEUES:
            with self.append_lock:  # so that the queues' own ends are those assigned last
                self.catch_up()
                self._queues.forget_queue_offsets()

    def _take(self) -> None:
        """Take what waits, and the last record of it; the caller holds the append lock."""
        self.appending.check()
        self._handing_on.begin()
        self._handed = self.pending  # before nothing waits any more, see behind
        self._handed_keys, self._handed_last = self._pending_keys, self._pending_last
        self.pending, self._pending_keys = UnitBatch(), IndexBatch()

    def _hand_on(self) -> None:
        """Bring what was taken into the queues and the index."""
        batch = self._handed
        try:
            if batch.end_phy_offset:
                if self.before_store is not None:
                    self.before_store()
                self._store(batch, self._handed_keys)
                self.last_dispatched = self._handed_last
                wanted = _SLICE_PER_QUEUE * len(batch.queues)
                self.full_at = max(self._slice, min(wanted, _MAX_SLICE))
        except BaseException as exc:
            self._state.fail(exc)
            raise
        self._handed, self._handed_keys = _NOTHING, _NO_KEYS
        self._handing_on.end()

    # ---- replay feed

    def replay(
        self,
        records: Iterable[ScannedRecord],
        queues_from: int,
        index_from: int | None,
        progress: Callable[[int], object] = bool,
    ) -> "ReplayResult":
        """Dispatch scanned records, to the queues those that start at or behind ``queues_from``.

        At or behind, not behind: RocketMQ's ``>`` loses a record (spec trap T16). To the index
        go those from ``index_from`` on, none if it is ``None``. Whatever was read before a
        ``CorruptionError`` of ``records`` is stored; the error is returned, not raised, for it is
        how the scan of a torn log ends. ``progress`` is told phy offsets, one a batch.
        """
        result = ReplayResult()
        batch, keys, full_at = UnitBatch(), IndexBatch(), REPLAY_UNITS
        storing = False
        try:
            for record in records:
                result.note(record)
                self._replay_one(record, batch, keys, queues_from, index_from)
                if len(batch) >= full_at:
                    wanted = min(_SLICE_PER_QUEUE * len(batch.queues), MOST_REPLAY_UNITS)
                    if len(batch) < wanted:
                        full_at = wanted
                        continue
                    storing = True
                    result.take(batch, self._store(batch, keys))
                    storing = False
                    progress(record.phy_offset)
                    batch, keys, full_at = UnitBatch(), IndexBatch(), REPLAY_UNITS
        except CorruptionError as exc:
            if storing:  # the queues' fault, a gap for one, is not the end of the log
                raise
            result.fault = exc
        if batch.end_phy_offset or len(keys):
            result.take(batch, self._store(batch, keys))
        return result

    def _replay_one(
        self,
        record: ScannedRecord,
        batch: UnitBatch,
        keys: IndexBatch,
        queues_from: int,
        index_from: int | None,
    ) -> None:
        phy_offset, size, topic, queue_id, queue_offset, sys_flag, timestamp, data = record
        properties = dispatch_properties(data)
        if phy_offset >= queues_from:
            if properties.only_tags and not len(self._deleted):
                if is_queued(sys_flag):
                    batch.add(
                        (topic, queue_id), queue_offset,
                        phy_offset, size, properties.tags_code, timestamp,
                    )  # fmt: skip
            else:
                self._add(
                    batch.add, topic, queue_id, queue_offset, phy_offset, size, timestamp, sys_flag,
                    properties,
                )  # fmt: skip
            batch.end_phy_offset = phy_offset + size
        if index_from is not None and self._index is not None and phy_offset >= index_from:
            self._note_keys(keys, topic, sys_flag, properties, phy_offset, timestamp)

    def units_of(self, records: Iterable[ScannedRecord], topics: Container[str]) -> Iterator[Unit]:
        """Yield the units that ``records`` have in queues of ``topics``, light ones too."""
        found: list[Unit] = []

        def add(key: tuple[str, int], *unit: int) -> None:
            if key[0] in topics:
                found.append(Unit(key, *unit))

        for record in records:
            properties = dispatch_properties(record.properties)
            if record.topic in topics or properties.multi_dispatch:
                self._add(
                    add, record.topic, record.queue_id, record.queue_offset, record.phy_offset,
                    record.size, record.store_timestamp, record.sys_flag, properties,
                )  # fmt: skip
                yield from found
                found.clear()

    # ---- both

    def _note_keys(
        self,
        keys: IndexBatch,
        topic: str,
        sys_flag: int,
        properties: DispatchProperties,
        phy_offset: int,
        timestamp: int,
    ) -> None:
        if sys_flag & TRANSACTION_MASK == SysFlag.TRANSACTION_ROLLBACK:
            return
        tags = properties.tags if self._indexes_tags else None
        if not properties.only_tags:
            uniq_key, words = properties.uniq_key, properties.keys
            keys.add_record(topic, uniq_key, words, tags, phy_offset, timestamp)
        elif tags:
            keys.add(topic, TAGS_PREFIX + tags, phy_offset, timestamp)

    def _store(self, batch: UnitBatch, keys: IndexBatch) -> list[QueueRestart]:
        restarts: list[QueueRestart] = []
        if batch.end_phy_offset:
            restarts = self._queues.put_batch(batch)
        if self._index is not None:
            self._index.put_batch(keys)
        return restarts


class ReplayResult:
    """What a replay met and did."""

    def __init__(self) -> None:
        self.records = 0
        self.units = 0
        self.first_phy_offset = -1
        self.last: ScannedRecord | None = None
        self.restarts: list[QueueRestart] = []
        self.fault: CorruptionError | None = None

    def note(self, record: ScannedRecord) -> None:
        """Count one scanned record."""
        if not self.records:
            self.first_phy_offset = record.phy_offset
        self.records += 1
        self.last = record

    def take(self, batch: UnitBatch, restarts: list[QueueRestart]) -> None:
        """Count one stored batch."""
        self.units += len(batch)
        self.restarts += restarts

    def join(self, following: "ReplayResult") -> None:
        """Take in the result of a replay that went on where this one stopped."""
        self.records += following.records
        self.units += following.units
        self.last = following.last or self.last
        self.restarts += following.restarts
        self.fault = following.fault
