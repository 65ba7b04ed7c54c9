"""QueueRebuild: rebuilds the queues of one topic from the log, in an open store.

A small journal is written before a queue is removed, and removed when the queue is complete again:
the next open repeats a rebuild that a crash interrupts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import remove_file
from cqstore.store.index.index_batch import IndexBatch
from cqstore.store.journals.journal import Entry, Journal, read_lines
from cqstore.store.journals.journal_manifest import register, unregister
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.progress import Progress, noop
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueRestart, QueueType
from cqstore.store.queue.units import QueueKey, UnitBatch
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.dispatching.dispatch import Dispatcher
from cqstore.store.service.dispatching.pending import Pending
from cqstore.store.service.dispatching.record_keys import RecordKeys
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.dispatching.replay import Replay

_LOG = StoreLogger(__name__)
_TICK = 65_536
_NONE: set[int | None] = set()


class RebuildReport(NamedTuple):
    """The result of a rebuild of single queues."""

    queues: int
    """Number of queues before the rebuild; the number may differ now."""
    units: int


class QueueRebuild:
    """Rebuilds queues of one open store. The caller ensures that only one runs at a time."""

    def __init__(
        self,
        paths: StorePaths,
        log: CommitLog,
        queues: ConsumeQueueStore,
        units: RecordUnits,
        pending: Pending,
        dispatcher: Dispatcher,
        rules: ScanRules,
        failed: Callable[[BaseException], object],
    ) -> None:
        """``failed`` is called if queues are left incomplete: then no puts are allowed."""
        self._path = paths.rebuilding
        self._log = log
        self._queues = queues
        self._units = units
        self._pending = pending
        self._dispatcher = dispatcher
        self._rules = rules
        self._failed = failed

    def run(
        self, topic: str, queue_id: int | None = None, progress: Progress | None = None
    ) -> RebuildReport:
        """Rebuild one queue, or all of ``topic``, see ``MessageStore.rebuild_queues``.

        Raises:
            RefusedStoreError: a queue would lose units.
            StoreError: as for ``MessageStore.rebuild_queues``.
        """
        queues = self._queues
        queues.check_topic(topic)
        counted = self._log.max_phy_offset()
        on_progress = progress or noop
        counts = self._count(topic, 0, counted, on_progress)

        def rebuild() -> RebuildReport:
            end = self._log.max_phy_offset()
            behind = self._count(topic, counted, end, lambda _: None)
            return self._rebuild(topic, queue_id, counts + behind, on_progress)

        return self._dispatcher.when_caught_up(rebuild)

    def _rebuild(
        self, topic: str, queue_id: int | None, counts: Counter[int], progress: Progress
    ) -> RebuildReport:
        """Rebuild queues for which the log has ``counts`` units; no thread puts meanwhile."""
        queues = self._queues
        keys = [key for key in queues.queues(topic) if queue_id in {None, key.queue_id}]
        is_batch = queues.queue_type(topic) is QueueType.BATCH
        for key in keys:
            low, high = queues.queue(*key).ends()
            if not counts[key.queue_id] and low < high:
                raise RefusedStoreError(
                    f"cannot rebuild queue {key.queue_id} of topic {topic!r}: under these settings"
                    " no record of the log belongs to it, so a rebuild would lose its units"
                )
        if is_batch:  # without units, it would lose its next offset
            keys = [key for key in keys if counts[key.queue_id]]
            lost = {QueueKey(topic, number) for number in counts if queue_id in {None, number}}
            entries = [
                {"topic": topic, "queue": number, "ends": []}
                for _, number in sorted({*keys, *lost})
            ]
        else:
            ends = [[key.queue_id, queues.queue(*key).max_offset()] for key in keys]
            entries = [{"topic": topic, "queue": queue_id, "ends": ends}]
        units = self.build(entries, progress) if entries else 0
        return RebuildReport(len(keys), units)

    def build(self, entries: Sequence[Entry], progress: Progress = noop) -> int:
        """Record durably which queues are removed, remove and rebuild them; return their units.

        No puts meanwhile. Each entry names a topic, one queue or ``None`` for all of them, and
        ``ends``: the removed queues, each with its minimum next offset.
        """
        noted = False
        try:
            Journal(self._path, _is_entry, register).append(entries)
            noted = True
            units = self._build(entries, progress)
            self._finish()
        except BaseException as exc:
            # A put would use an offset of an incomplete queue. A line that could not be written
            # does no harm: nothing is removed then.
            if noted or not isinstance(exc, StoreIOError):
                self._failed(exc)
            raise
        return units

    def drop_half_built(self) -> None:
        """Remove the queues of an interrupted rebuild; called before the log is replayed.

        Units after the rebuilt part would leave a gap. ``resume`` builds the queues completely.
        """
        self._remove(_wanted(self._interrupted()))

    def resume(self) -> list[str]:
        """Repeat interrupted rebuilds; return the topics. Called before the store is served."""
        entries = self._interrupted()
        topics = sorted({entry["topic"] for entry in entries})
        if entries:
            _LOG.warning("a rebuild of queues was interrupted, starting it again: %r", topics[:10])
            self._build(entries)
        if exists(self._path):
            self._finish()
        return topics

    def _count(self, topic: str, start: int, end: int, progress: Progress) -> Counter[int]:
        """Count the units of each queue; this detects a damaged log before anything is removed."""
        records = ticking(self._log.scan_kept(self._rules, start, end), progress)
        units = self._units.of(records, {topic})
        return Counter(unit.key[1] for unit in units)

    def _build(self, entries: Sequence[Entry], progress: Progress = noop) -> int:
        """Remove the queues of ``entries`` and dispatch their records again; return the units."""
        queues = self._queues
        ends = [(entry["topic"], *pair) for entry in entries for pair in entry["ends"]]
        wanted = _wanted(entries)
        self._remove(wanted)
        count = self._replay(wanted, progress)
        for topic, number, end in ends:
            if end and not queues.queue(topic, number).max_offset():  # all its records have expired
                queues.restore_end(topic, number, end)
        offsets = self._pending.offsets
        offsets.forget(offsets.queues_of(wanted))
        queues.flush()
        return count

    def _replay(self, wanted: Mapping[str, set[int | None]], progress: Progress) -> int:
        """Put the log's units for the queues; return how many.

        Raises:
            CorruptionError: the log is damaged.
        """
        count = 0

        def put(batch: UnitBatch, _: IndexBatch) -> list[QueueRestart]:
            nonlocal count
            keep = [not wanted.get(topic, _NONE).isdisjoint({None, n}) for topic, n in batch.queues]
            chosen = batch.of_queues(np.array(keep, bool))
            count += len(chosen)
            return self._queues.put_batch(chosen) if len(chosen) else []

        log, keys = self._log, RecordKeys(wanted=False, tags=False)
        blocks = log.scan_blocks(max(log.min_phy_offset(), 0), rules=self._rules)
        result = Replay(put, self._units, keys).run(blocks, 0, None, progress)
        if result.fault is not None:
            raise result.fault
        return count

    def _interrupted(self) -> list[Entry]:
        """Return the entries of the journal; a torn line is ignored: nothing had been removed."""
        return [entry for entry in read_lines(self._path, _is_entry) if entry is not None]

    def _remove(self, wanted: Mapping[str, set[int | None]]) -> None:
        for topic, queue_ids in wanted.items():
            for key in list(self._queues.queues(topic)):
                if not queue_ids.isdisjoint({None, key.queue_id}):
                    self._queues.delete_queue(*key)

    def _finish(self) -> None:
        with os_errors("remove the journal of a rebuild", self._path):
            unregister(self._path)
            remove_file(self._path)


def ticking(records: Iterable[ScannedRecord], progress: Progress) -> Iterator[ScannedRecord]:
    """Yield ``records``, and call ``progress`` with every 65,536th."""
    for number, record in enumerate(records):
        if number % _TICK == 0:
            progress(record.phy_offset)
        yield record


def _wanted(entries: Sequence[Entry]) -> dict[str, set[int | None]]:
    """Return topic → queue ids to build, with ``None`` for all queues of the topic."""
    wanted: dict[str, set[int | None]] = {}
    for entry in entries:
        wanted.setdefault(entry["topic"], set()).add(entry["queue"])
    return wanted


def _is_entry(entry: Entry) -> bool:
    """Return whether ``entry`` is a line of a rebuild."""
    ends = entry.get("ends")
    if not isinstance(entry.get("topic"), str) or not isinstance(ends, list):
        return False
    if not isinstance(entry.get("queue"), int | None):
        return False
    return all(
        isinstance(pair, list) and [type(part) for part in pair] == [int, int] for pair in ends
    )
