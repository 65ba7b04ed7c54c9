"""Skipping a damaged record: losing one message instead of all that follow it.

A filler replaces it in the log (``store.record.filler``), so RocketMQ, a rebuild and every scan
find a sound record there, and its queue has no gap. The steps, each durable before the next: save
its bytes, write the filler into a separate file, write it into the log, remove the file. A filler
that is found in that file is written into the log again, if the log is damaged at exactly that
offset.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cqstore.store.errors import CorruptionError, RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import make_folder, read_file, remove_file, replace_file
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.path_kind import exists
from cqstore.store.paths import StorePaths
from cqstore.store.queue.consume_queue_store import ConsumeQueueStore
from cqstore.store.queue.facts import QueueType
from cqstore.store.queue.units import QueueKey
from cqstore.store.record.decoder import StoredMessage, check_record, record_span
from cqstore.store.record.filler import RecordPlace, filler, readable
from cqstore.store.record.message import LMQ_PREFIX, MessageProperty, is_queued
from cqstore.store.record.properties import crc_property, encode_properties
from cqstore.store.record.record_layout import BLANK_SIZE, MIN_RECORD_SIZE
from cqstore.store.record.scan import ScanRules
from cqstore.store.service.recovering.find_log_end import (
    SavedTail,
    is_boundary,
    save_record,
    valid_record_behind,
)


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A damaged record that was replaced by a filler."""

    phy_offset: int
    size: int
    place: RecordPlace | None
    """Its queue and queue offset; ``None`` if it was in no queue, or the queue is unknown."""
    saved: Path
    """The file with its damaged bytes."""


class PassOver:
    """Skips damaged records of one store during its recovery."""

    def __init__(
        self,
        paths: StorePaths,
        log: CommitLog,
        queues: ConsumeQueueStore,
        rules: ScanRules,
        is_deleted: Callable[[str, int], bool],
    ) -> None:
        """``is_deleted``: whether the record (topic, phy offset) is in no queue any more."""
        self._paths = paths
        self._log = log
        self._queues = queues
        self._rules = rules
        self._is_deleted = is_deleted

    def unfinished(self) -> bytes | None:
        """Return the filler that an interrupted skip was about to write.

        Raises:
            CorruptionError: the file with the filler is damaged.
            StoreIOError: the file cannot be read.
        """
        path = self._paths.passing_over
        try:
            with os_errors("read the filler record", path):
                record = read_file(path, self._log.files.file_size)
        except StoreIOError as exc:
            if isinstance(exc.__cause__, FileNotFoundError):
                return None
            raise
        with suppress(CorruptionError):
            phy_offset = StoredMessage(record).phy_offset
            found = check_record(record, phy_offset, check_crc=True, property_crc=False)
            if found.is_passed_over:
                return record
        raise CorruptionError(
            "invalid filler record for a damaged record. Move this file away, then run cqstore"
            " recover --pass-over again", path=path,
        )  # fmt: skip

    def forget_unfinished(self) -> None:
        """Remove the filler of an interrupted skip that the log does not need."""
        path = self._paths.passing_over
        if exists(path):
            with os_errors("remove the filler record", path):
                remove_file(path)

    def run(self, phy_offset: int, store_timestamp: int) -> PassedOver:
        """Write a filler in place of the damaged record at ``phy_offset``.

        ``store_timestamp`` is that of the previous record, used if its own cannot be read.

        Raises:
            RefusedStoreError: the end of the record is unknown, or no filler fits there.
            StoreIOError: writing failed; the next opening can continue.
        """
        file = self._log.files.find(phy_offset)
        if file is None:
            raise RefusedStoreError("no commit log file has this phy offset", phy_offset=phy_offset)
        left = file.file_from_offset + file.file_size - BLANK_SIZE - phy_offset
        record = self.unfinished()
        begun = record is not None and StoredMessage(record).phy_offset == phy_offset
        if record is None or not begun or len(record) > left:
            record = self._filler(file, phy_offset, left, store_timestamp)
        saved = save_record(self._log, phy_offset, len(record), self._paths.cut)
        path = self._paths.passing_over
        with os_errors("write the filler record", path):
            make_folder(path.parent)
            replace_file(path, record)
        file.rewrite(phy_offset - file.file_from_offset, record)
        self.forget_unfinished()
        return _passed(StoredMessage(record), saved)

    # ---- reconstructing the record

    def _filler(self, file: MappedFile, phy_offset: int, left: int, store_timestamp: int) -> bytes:
        """Return the record that replaces the damaged one at ``phy_offset``.

        Raises:
            RefusedStoreError: its length is unknown.
        """
        position = phy_offset - file.file_from_offset
        size = self._size(file, phy_offset)
        like = readable(file.read_raw(position, size), phy_offset)
        known = self._find_units(like, phy_offset)
        if known is not None and known.size != size:
            behind = valid_record_behind(self._log, phy_offset) or phy_offset + left
            size = max(0, min(known.size, left, behind - phy_offset))  # a unit has no checksum
            like = readable(file.read_raw(position, size), phy_offset)
        if not MIN_RECORD_SIZE <= size <= left:
            raise RefusedStoreError(
                f"cannot give up only the record at {phy_offset}: its length is unknown",
                path=file.path, phy_offset=phy_offset,
            )  # fmt: skip
        place = known.place if known else self._likely_place(like, phy_offset, size)
        properties = known.properties() if known else b""
        if self._rules.property_crc:
            properties += crc_property(0)
        try:
            return filler(size, phy_offset, place, like, store_timestamp, properties)
        except CorruptionError as exc:
            raise RefusedStoreError(str(exc), path=file.path, phy_offset=phy_offset) from exc

    def _size(self, file: MappedFile, phy_offset: int) -> int:
        """Return the record's stored size, or else the bytes up to the next record; 0: unknown."""
        position = phy_offset - file.file_from_offset
        left = file.file_size - position
        behind = valid_record_behind(self._log, phy_offset)
        with suppress(CorruptionError):
            size = record_span(file.read_raw(position, min(BLANK_SIZE, left)), 0, left, phy_offset)
            ends_well = behind is None or is_boundary(self._log, phy_offset + size, self._rules)
            if size and ends_well:
                return size
        if behind is None or behind >= file.file_from_offset + file.file_size:
            return 0
        return behind - phy_offset

    def _find_units(self, like: StoredMessage | None, phy_offset: int) -> "_Known | None":
        """Return the queues' data about the record; ``None`` if no queue has its unit."""
        if like is not None:
            found = self._unit_in(QueueKey(like.topic, like.queue_id), phy_offset)
            if found is not None:
                return _Known(*found, [])
        known: tuple[RecordPlace, int] | None = None
        light: list[RecordPlace] = []
        for key in self._queues.queues():
            found = self._unit_in(key, phy_offset)
            if found is not None and key.topic.startswith(LMQ_PREFIX):
                light.append(found[0])
            else:
                known = found or known
        return None if known is None else _Known(*known, light)

    def _unit_in(self, key: QueueKey, phy_offset: int) -> tuple[RecordPlace, int] | None:
        """Search the unit in one queue, whose units are in log order."""
        if self._queues.queue_type(key.topic) is QueueType.BATCH:
            return None
        queue = self._queues.queue(*key)
        low, high = queue.ends()
        while low < high:
            middle = (low + high) // 2
            block = queue.read_units(middle, 1)
            unit = next(iter(block.rows()), None)
            if unit is None or unit[0] < phy_offset:
                low = middle + 1
            elif unit[0] > phy_offset:
                high = middle
            else:
                return RecordPlace(key.topic, key.queue_id, middle), unit[1]
        return None

    def _likely_place(
        self, like: StoredMessage | None, phy_offset: int, size: int
    ) -> RecordPlace | None:
        """Return the place of a record without a unit: its stored place, if that is possible.

        No checksum covers the stored place. It must be the next one of its queue, or the one that a
        later record shows to be missing.
        """
        if like is not None:
            place = RecordPlace(like.topic, like.queue_id, like.queue_offset)
            gone = self._is_deleted(like.topic, phy_offset)
            if gone or not is_queued(like.sys_flag) or self._next(place) == place.queue_offset:
                return place
        seen: set[tuple[str, int]] = set()
        with suppress(CorruptionError):
            for record in self._log.scan(phy_offset + size, rules=self._rules):
                key = (record.topic, record.queue_id)
                if key in seen or not is_queued(record.sys_flag):
                    continue
                seen.add(key)
                place = RecordPlace(*key, record.queue_offset - 1)
                gone = self._is_deleted(record.topic, record.phy_offset)
                known = place.queue_offset > 0 or self._log.min_phy_offset() <= 0
                if known and not gone and self._next(place) == place.queue_offset:
                    return place
        return None

    def _next(self, place: RecordPlace) -> int:
        return self._queues.queue(place.topic, place.queue_id).max_offset()


class _Known(NamedTuple):
    """The queues' data about a record."""

    place: RecordPlace
    size: int
    light: list[RecordPlace]
    """Its places in light queues."""

    def properties(self) -> bytes:
        """Return the properties without which a rebuild would leave gaps in the light queues."""
        if not self.light:
            return b""
        names, offsets = (
            [one.topic for one in self.light],
            [str(one.queue_offset) for one in self.light],
        )
        return encode_properties({
            MessageProperty.INNER_MULTI_DISPATCH: ",".join(names),
            MessageProperty.INNER_MULTI_QUEUE_OFFSET: ",".join(offsets),
        })  # fmt: skip


def _passed(record: StoredMessage, saved: SavedTail) -> PassedOver:
    place = None
    if is_queued(record.sys_flag):
        place = RecordPlace(record.topic, record.queue_id, record.queue_offset)
    return PassedOver(record.phy_offset, record.size, place, saved.path)
