"""The full check of a store: every record, every unit, every file. Changes nothing.

Damage is reported and skipped, so that one bad record does not hide the next.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from cqstore.store.errors import CorruptionError, StoreError
from cqstore.store.index.index_check import REBUILD_INDEX
from cqstore.store.index.index_service import IndexService
from cqstore.store.journals.deleted_topics import DeletedTopics
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.queue.combined import CombinedConsumeQueueStore
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import BlockStop, QueueKey
from cqstore.store.record.decoder import StoredMessage
from cqstore.store.record.message import LMQ_PREFIX, SCHEDULE_TOPIC, SysFlag, is_queued
from cqstore.store.record.properties import DispatchProperties, dispatch_properties
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.dispatching.delay import DelayLevels, FoundLevels
from cqstore.store.service.dispatching.record_units import batch_size_of, light_queues
from cqstore.store.service.layout.file_notes import FileNote
from cqstore.store.service.maintenance.queue_incarnations import (
    QueueIncarnation,
    QueueIncarnations,
    hash_of,
)
from cqstore.store.service.recovering.find_log_end import data_behind, valid_record_behind
from cqstore.store.settings.config import StoreConfig

_UNITS = 4096
_QUEUES = 4096
_IGNORED_TICKS = 65_536


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A finding of a check.

    ``damage``: the store is damaged; otherwise the finding is a note.
    """

    problem: str
    damage: bool = True
    path: str = ""
    phy_offset: int | None = None
    position: int | None = None
    queue: QueueKey | None = None
    queue_offset: int | None = None
    key: bytes = b""
    """The database key of the finding, for queues in RocksDB."""
    expected: object = None
    found: object = None
    all_queues: bool = False
    """Only a rebuild of all queues repairs it."""


class StoreCheck:
    """One check of an open store: log, queues, index, and their consistency."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        end_phy_offset: int,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        deleted: DeletedTopics,
        progress: Callable[[int], None] | None = None,
        index_left_out: StoreError | None = None,
        notes: Sequence[FileNote] = (),
    ) -> None:
        """Prepare a check; nothing is read yet.

        Args:
            config: the settings of the store.
            log: its commit log.
            end_phy_offset: records before it were dispatched to queues and index; the check
                ends there, however far the log has grown.
            queues: its queues.
            index: its index; ``None``: it has none, or it cannot be read.
            deleted: its journal of deleted topics, whose records need no unit.
            progress: called with phy offsets from time to time. They rise twice: up to the scanned
                end of the log, then by the bytes of the records of checked units.
            index_left_out: why an existing index cannot be read.
            notes: notes on unusual files, to be reported too.
        """
        self._log = log
        self._end = end_phy_offset
        self._queues = queues
        self._index = index
        self._index_left_out = index_left_out
        self._notes = notes
        self._deleted = deleted
        self._rules = ScanRules(check_crc=True, property_crc=config.force_verify_prop_crc)
        self._delays = DelayLevels(config.message_delay_level)
        self._found_levels = FoundLevels(self._delays)
        self._levels_given = "message_delay_level" in config.model_fields_set
        self._progress = progress or (lambda _: None)
        self._incarnations = QueueIncarnations()
        self._unit_bytes = 0  # of the records of checked units
        self.records = 0
        """Number of records scanned."""
        self.units = 0
        """Number of units checked."""

    def run(self, *, queues: bool = True) -> Iterator[CheckFinding]:
        """Yield all findings: of the log first, then of queues, files and index.

        Without ``queues`` these are skipped: they could not be loaded.
        """
        for note in self._notes:
            found = note.fault
            yield CheckFinding(
                note.problem, damage=False, path=str(note.path),
                expected=found and found.expected, found=found and found.got,
            )  # fmt: skip
        yield from self._check_log()
        if queues:
            yield from _as_far_as_readable(self._check_files())
            yield from _as_far_as_readable(self._check_queues())
        yield from self._check_index()

    def _check_files(self) -> Iterator[CheckFinding]:
        """Yield the problems of the queues' files."""
        for finding in self._queues.check_files():
            yield CheckFinding(
                finding.problem, path=finding.path, position=finding.position,
                queue=finding.queue, queue_offset=finding.queue_offset, key=finding.key,
                expected=finding.expected, found=finding.found, all_queues=finding.all_queues,
                damage=finding.damage,
            )  # fmt: skip

    def _check_queues(self) -> Iterator[CheckFinding]:
        """Yield the problems of the queues' units, and missing units of records in the log."""
        for keys in _blocks(self._queues.queues(), _QUEUES):
            for key, logged in zip(keys, self._incarnations.lookup(keys), strict=True):
                yield from self._check_queue(key, logged)
        for hashed, phy_offset in self._incarnations.unchecked():
            yield CheckFinding(
                "the log has records of this queue, but the queue does not exist: its topic was "
                "deleted, or the records were never dispatched",
                damage=False,
                queue=self._queue_of(phy_offset, hashed),
                phy_offset=phy_offset,
            )
        for level, delay_ms in self._found_levels.delays_ms.items():
            yield CheckFinding(
                f"messages of delay level {level} wait {delay_ms} ms, which differs from the"
                " default of messageDelayLevel: pass the broker's settings (--config) to check"
                " them",
                damage=False,
            )
        yield from self._compare_backends()

    def _check_index(self) -> Iterator[CheckFinding]:
        """Yield the problems of the index."""
        if self._index is not None:
            for finding in self._index.check(self._log.max_phy_offset()):
                yield CheckFinding(
                    finding.problem, path=finding.path, position=finding.position,
                    expected=finding.expected, found=finding.found, damage=finding.damage,
                )  # fmt: skip
        if (fault := self._index_left_out) is not None:
            yield CheckFinding(
                f"the index cannot be read, so queries by key find nothing: {fault.reason};"
                f" {REBUILD_INDEX}",
                damage=isinstance(fault, CorruptionError),
                path=str(fault.path) if fault.path else "",
                position=fault.position,
                expected=getattr(fault, "expected", None),
                found=getattr(fault, "got", None),
            )

    # ---- the log

    def _check_log(self) -> Iterator[CheckFinding]:
        """Yield damage of the log, and record the places of its records; continues after damage."""
        at: int | None = max(self._log.min_phy_offset(), 0)
        while at is not None and at < self._end:
            try:
                for record in self._log.scan(at, self._end, self._rules):
                    self._note(record)
                    if record.sys_flag & SysFlag.PASSED_OVER:
                        yield self._passed_over(record)
                break
            except CorruptionError as exc:
                bad = at if exc.phy_offset is None else exc.phy_offset
                if bad < self._log.min_phy_offset():  # it has expired meanwhile
                    at = self._log.min_phy_offset()
                    continue
                yield self._in_log(str(exc), bad, damage=True)
                at = valid_record_behind(self._log, bad)
        yield from self._check_beyond_end()

    def _check_beyond_end(self) -> Iterator[CheckFinding]:
        """Yield data after the end of the log, unless it is being written at the moment."""
        log = self._log
        end = log.max_phy_offset()
        spans = data_behind(log, end)
        if log.append_began or log.max_phy_offset() != end:
            return
        for file, first, last in spans:
            yield CheckFinding(
                f"there are {last - first} bytes after the end of the log",
                damage=False,
                path=str(file.path),
                position=first,
                phy_offset=file.file_from_offset + first,
            )

    def _passed_over(self, record: ScannedRecord) -> CheckFinding:
        problem = "a damaged record was passed over here; its bytes are saved in cqstore/cut"
        return self._in_log(problem, record.phy_offset, damage=False)

    def _in_log(self, problem: str, phy_offset: int, *, damage: bool) -> CheckFinding:
        """Return a finding with the file of the log and the position in it."""
        file = self._log.files.find(phy_offset)
        path = self._log.files.folder if file is None else file.path
        position = None if file is None else phy_offset - file.file_from_offset
        return CheckFinding(problem, damage, str(path), phy_offset, position)

    def _note(self, record: ScannedRecord) -> None:
        """Count a record, and record its places in queues."""
        self.records += 1
        if self.records % _IGNORED_TICKS == 0:
            self._progress(record.phy_offset)
        if not is_queued(record.sys_flag):
            return
        properties = dispatch_properties(record.properties)
        for topic, queue_id, offset in _places(record, properties):
            if not self._deleted.has_record(topic, record.phy_offset):
                self._incarnations.note((topic, queue_id), offset, record.phy_offset)

    def _queue_of(self, phy_offset: int, hashed: int) -> QueueKey | None:
        """Return the queue of a record, its own or a light one, with this hash."""
        try:
            record = next(self._log.scan(phy_offset))
        except CorruptionError:  # it has expired meanwhile
            return None
        places = _places(record, dispatch_properties(record.properties))
        found = (QueueKey(topic, number) for topic, number, _ in places)
        return next((key for key in found if hash_of(key) == hashed), None)

    # ---- the queues

    def _check_queue(
        self, key: QueueKey, logged: QueueIncarnation | None
    ) -> Iterator[CheckFinding]:
        """Yield the problems of a queue's units; ``logged`` are the log's records of it."""
        try:
            queue = self._queues.queue(*key)
            low, high = queue.ends()
            yield from self._compare_with_log(key, logged, low, high)
            if self._queues.queue_type(key.topic) is QueueType.BATCH:
                yield from self._check_batch_queue(key, low)
                return
            at, previous = low, -1
            while at < high:
                block = queue.read_units(at, min(_UNITS, high - at))
                for phy_offset, size, tags_code in block.rows():
                    if phy_offset <= previous:
                        yield self._unit(
                            "the unit's record is before that of the previous unit", key, at
                        )
                    previous = phy_offset
                    yield from self._check_unit(key, at, phy_offset, size, tags_code)
                    at += 1
                if block.stop is BlockStop.HOLE and block.hole is not None:
                    missing = f"units {block.hole.start} to {block.hole.stop - 1} are missing"
                    yield self._unit(missing, key, at)
                    at = block.hole.stop
                elif not block.count:
                    yield self._unit(f"the queue ends before its max offset {high}", key, at)
                    break
        except CorruptionError as exc:
            yield replace(_of_error(exc), queue=key)
        except StoreError as exc:
            yield CheckFinding(str(exc), path=str(exc.path or ""), queue=key)

    def _compare_with_log(
        self, key: QueueKey, logged: QueueIncarnation | None, low: int, high: int
    ) -> Iterator[CheckFinding]:
        """Yield the records of a queue that have no unit in [``low``, ``high``)."""
        if logged is None:
            return
        if logged.last >= high:
            problem = f"records {max(high, logged.first)} to {logged.last} of the log have no unit"
            yield self._unit(problem, key, high)
        if logged.first < low:
            problem = (
                f"records {logged.first} to {low - 1} of the log are below the queue's min offset"
            )
            yield self._unit(problem, key, low)

    def _compare_backends(self) -> Iterator[CheckFinding]:
        """Compare the backends of a store with double write, unless one is known to lag."""
        queues = self._queues
        if not isinstance(queues, CombinedConsumeQueueStore):
            return
        for name, exc in queues.detached.items():
            yield CheckFinding(f"the {name} queues are detached: {exc}")
        for name, at in queues.lagging.items():
            problem = f"the {name} queues lag: complete up to here; they catch up at the next open"
            yield CheckFinding(problem, damage=False, phy_offset=at)
        if queues.lagging or len(queues.backends()) == 1:
            return
        from cqstore.store.comparing.open_sides import compare_open  # noqa: PLC0415 - seldom needed

        try:
            compared = compare_open(queues, progress=self._progress)
        except StoreError as exc:
            yield CheckFinding(f"cannot compare the backends: {exc}")
            return
        for queue, found in compared.differences():
            key = QueueKey(queue.topic, queue.queue_id)
            yield CheckFinding(compared.sentence(found), queue=key, queue_offset=found.first)

    def _check_batch_queue(self, key: QueueKey, low: int) -> Iterator[CheckFinding]:
        """Yield the problems of a batch queue's units."""
        following = low
        for unit in self._queues.queue(*key).iterate(low):
            if unit.queue_offset != following:
                yield self._unit(
                    f"expected a unit at queue offset {following}", key, unit.queue_offset
                )
            following = unit.queue_offset + unit.batch_num
            yield from self._check_unit(
                key, unit.queue_offset, unit.phy_offset, unit.size, unit.tags_code or 0,
                batch_num=unit.batch_num,
            )  # fmt: skip

    def _check_unit(
        self, key: QueueKey, offset: int, phy_offset: int, size: int, tags_code: int,
        *, batch_num: int = 0,
    ) -> Iterator[CheckFinding]:  # fmt: skip
        """Yield the differences between a unit and the dispatch of its record.

        ``batch_num``: the number of messages in a unit of a batch queue.
        """
        self.units += 1
        self._unit_bytes += size
        if self.units % _IGNORED_TICKS == 0:
            self._progress(max(self._log.min_phy_offset(), 0) + self._unit_bytes)
        try:
            message = StoredMessage(self._log.view(phy_offset, size), phy_offset)
        except CorruptionError as exc:
            yield self._unit(
                f"the unit does not point to a message: {exc}", key, offset, phy_offset
            )
            return
        code = self._queues.queue(*key).resolve_tags_code(tags_code)
        for problem in self._differences(key, offset, message, code, batch_num):
            yield self._unit(problem, key, offset, phy_offset)

    def _differences(
        self, key: QueueKey, offset: int, message: StoredMessage, code: int | None, batch_num: int
    ) -> Iterator[str]:
        """Yield differences between a unit and its record as sentences; ``code`` is the unit's."""
        properties = dispatch_properties(message.properties_bytes)
        place: tuple[str, int, int] = (message.topic, message.queue_id, message.queue_offset)
        if key.topic.startswith(LMQ_PREFIX) and key.topic != message.topic:
            places = [(name, 0, at) for name, at in light_queues(message.topic, properties)]
            if (*key, offset) not in places:
                yield f"the unit points to a message of {place}, which is not in this light queue"
        elif place[:2] != tuple(key) or (not batch_num and place[2] != offset):
            yield f"the unit points to another message, {place}"
        elif batch_num and (properties.inner_base, batch_size_of(properties.inner_num or "")) != (
            str(offset), batch_num,
        ):  # fmt: skip
            yield (
                f"the unit has {batch_num} messages, but its record has {properties.inner_num} from"
                f" offset {properties.inner_base}"
            )
        expected = properties.tags_code
        if message.topic == SCHEDULE_TOPIC and properties.delay is not None:
            due = properties.delay, message.store_timestamp, expected
            if self._levels_given:
                expected = self._delays.tags_code(*due)
            else:
                expected = self._found_levels.tags_code(*due, code)
        if code is not None and code != expected and not message.is_passed_over:
            yield f"the unit's tags code is {code}, but the message's is {expected}"

    def _unit(
        self, problem: str, key: QueueKey, offset: int, phy_offset: int | None = None
    ) -> CheckFinding:
        """Return a finding with the location of the unit, whether or not it exists."""
        place = self._queues.queue(*key).unit_location(offset)
        return CheckFinding(
            problem, path=place.path, position=place.position, key=place.key, queue=key,
            queue_offset=offset, phy_offset=phy_offset,
        )  # fmt: skip


def _of_error(exc: CorruptionError) -> CheckFinding:
    """Return the finding for data that could not be read."""
    return CheckFinding(
        exc.reason, path=str(exc.path or ""), position=exc.position, phy_offset=exc.phy_offset,
        expected=exc.expected, found=exc.got,
    )  # fmt: skip


def _as_far_as_readable(findings: Iterator[CheckFinding]) -> Iterator[CheckFinding]:
    """Yield ``findings``; if the queues cannot be read, that is the last one."""
    try:
        yield from findings
    except CorruptionError as exc:
        yield replace(_of_error(exc), all_queues=True)


def _places(
    record: ScannedRecord, properties: DispatchProperties
) -> Iterator[tuple[str, int, int]]:
    """Yield topic, queue id and offset of each place of a record in queues."""
    yield record.topic, record.queue_id, record.queue_offset
    if properties.multi_dispatch:
        for name, offset in light_queues(record.topic, properties):
            yield name, 0, offset


def _blocks(keys: Iterator[QueueKey], size: int) -> Iterator[list[QueueKey]]:
    while block := list(islice(keys, size)):
        yield block
