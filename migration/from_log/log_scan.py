"""LogScan: read the units of a log file as columns, many records at a time.

The sizes of records are followed one by one. The remaining fields of ordinary records (IPv4 hosts,
one-byte topic length, no properties that produce other units) are gathered by numpy and checked in
columns, except for the CRC of each body. Every other record is passed to ``check_record`` and
``RecordUnits``, which define what is valid and what a unit is.
"""

import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cqstore.migration.from_log.record_tails import Tails
from cqstore.store.errors import CorruptionError, MagicCodeError
from cqstore.store.log.commit_log import CommitLog
from cqstore.store.log.mapped_file import MappedFile
from cqstore.store.queue.bulk import UNIT_ROWS, UnitRows, row_table
from cqstore.store.record.decoder import check_record, record_span
from cqstore.store.record.message import SysFlag, is_queued
from cqstore.store.record.properties import dispatch_properties
from cqstore.store.record.record_layout import (
    BLANK_SIZE,
    CRC_MASK,
    FIXED_V4,
    HEAD,
    HOST_V4_SIZE,
    MAGIC_V1,
    MAX_QUEUE_OFFSET,
    MIN_RECORD_SIZE,
    STORED,
    TAIL,
)
from cqstore.store.record.scan import ScannedRecord, ScanRules
from cqstore.store.service.dispatching.record_units import RecordUnits
from cqstore.store.service.recovering.find_log_end import refuse_lost_end

BLOCK_BYTES = 4 << 20
_V6_BITS = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_FIXED = FIXED_V4.size
_SIZE = Struct(">i")
_HOST = f"V{HOST_V4_SIZE}"
_HEADS = np.dtype([
    *HEAD.dtype.descr, ("born_host", _HOST), *STORED.dtype.descr, ("store_host", _HOST),
    *TAIL.dtype.descr,
])  # fmt: skip
"""The fixed fields of a record with two IPv4 hosts, in the layout of ``FIXED_V4``."""
_Int64s = NDArray[np.int64]
_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1


class ScannedUnits(NamedTuple):
    """Units in log order, as columns of the same length."""

    queues: _Int64s
    """Number of the topic in ``LogScan.topics`` (upper bits) and queue id (lower 32 bits)."""
    queue_offsets: _Int64s
    rows: UnitRows


class _Block(NamedTuple):
    """Result of one block of log bytes."""

    units: list[ScannedUnits]
    used: int
    """Bytes of complete records."""
    blank: bool = False
    """A blank record ends the file."""
    fault: CorruptionError | None = None


class LogScan:
    """Scanner of log files under one configuration. Not thread-safe."""

    def __init__(
        self, log: CommitLog, units: RecordUnits, rules: ScanRules, *, whole_only: bool
    ) -> None:
        """``whole_only``: the log was not closed cleanly, see ``whole_records``."""
        self._log = log
        self._units = units
        self._rules = rules
        self._whole_only = whole_only
        self._tails = Tails(units, no_zeros=whole_only)
        self.records = 0
        """Valid records read so far."""
        self.exact_records = 0
        """Records among them that the exact decoder has read."""

    @property
    def topics(self) -> list[str]:
        """Return the topics by number; the list only grows."""
        return self._tails.topics

    def scan(self, file: MappedFile, position: int = 0) -> Iterator[ScannedUnits]:
        """Yield the units of the records from ``position`` to the end of the file, in log order.

        Raises:
            CorruptionError: no valid record at its phy offset: the end of the log, or damage. All
                units before it have been yielded.
        """
        size = file.file_size
        while position < size:
            left, phy_offset = size - position, file.file_from_offset + position
            if left < BLANK_SIZE:
                raise MagicCodeError("the file ends without a blank record", phy_offset=phy_offset)
            block = self._block(file.read_raw(position, min(left, BLOCK_BYTES)), phy_offset, left)
            if not (block.used or block.blank or block.fault):
                span = record_span(file.read_raw(position, BLANK_SIZE), 0, left, phy_offset)
                if not span:
                    return
                block = self._block(file.read_raw(position, span), phy_offset, left)
            yield from block.units
            if block.fault is not None:
                raise block.fault
            if block.blank:
                return
            position += block.used

    # ---- one block

    def _block(self, data: bytes, phy_offset: int, left: int) -> _Block:
        """Return the units of the records that are complete in ``data``, and where they end."""
        starts, used = _walk(data)
        if not len(starts):
            return _Block([], 0)
        count = len(data) - _FIXED + 1
        heads = np.ndarray((count,), f"V{_FIXED}", data, 0, (1,))[starts].view(_HEADS)
        exact, topics, codes = self._sort_out(data, heads, starts, phy_offset, left)
        more, stop, blank, fault = self._exactly(data, starts, exact, phy_offset, left)
        if stop < len(starts):
            used = int(starts[stop])
            heads, exact = heads[:stop], exact[:stop]
        self.records += len(heads)
        units = _ordinary_units(heads, topics[:stop], codes[:stop], ~exact)
        return _Block(_together(units, more), used, blank, fault)

    def _sort_out(
        self, data: bytes, heads: NDArray[np.void], starts: _Int64s, phy_offset: int, left: int
    ) -> tuple[NDArray[np.bool_], _Int64s, _Int64s]:
        """Return which records need the exact decoder, and topics and tags codes of the others."""
        body_size = heads["body_size"].astype(np.int64)
        body_at = starts + _FIXED
        body_end = body_at + body_size
        ends = starts + heads["total_size"]
        places = heads["queue_offset"]
        ordinary = (
            (heads["magic_code"] == MAGIC_V1)
            & (heads["sys_flag"] & _V6_BITS == 0)
            & (body_size >= 0)
            & (body_end < ends - 2)
            & (ends <= left - BLANK_SIZE)
            & (heads["phy_offset"] == starts + phy_offset)
            & (places >= 0)
            & (places < MAX_QUEUE_OFFSET)
        )
        if self._rules.property_crc:
            ordinary[:] = False
        topics, codes = np.zeros((2, len(starts)), np.int64)
        at = np.flatnonzero(ordinary)
        ordinary[at], topics[at], codes[at] = self._tails.parse(data, body_end[at], ends[at])
        if self._rules.check_crc:
            ordinary[at] &= _crc_matches(data, body_at[at], body_end[at], heads["body_crc"][at])
        return ~ordinary, topics, codes

    def _exactly(
        self, data: bytes, starts: _Int64s, exact: NDArray[np.bool_], phy_offset: int, left: int
    ) -> tuple[ScannedUnits | None, int, bool, CorruptionError | None]:
        """Read the records that need the exact decoder.

        Returns their units, the number of valid records among all, and why they end: a blank
        record or a fault.
        """
        found: list[tuple[int, ...]] = []

        def add(key: tuple[str, int], *unit: int) -> None:
            found.append((self._tails.topic_number(key[0]) << _ID_BITS | key[1] & _ID_MASK, *unit))

        stop, blank, fault = len(starts), False, None
        for index in np.flatnonzero(exact).tolist():
            at = int(starts[index])
            try:
                record = self._check(data, at, left - at, phy_offset + at)
            except CorruptionError as exc:
                stop, fault = index, exc
                break
            if record is None:
                stop, blank = index, True
                break
            self._units.add(
                add, record.topic, record.queue_id, record.queue_offset, record.phy_offset,
                record.size, record.store_timestamp, record.sys_flag,
                dispatch_properties(record.properties),
            )  # fmt: skip
            self.exact_records += 1
        return _from_tuples(found), stop, blank, fault

    def _check(self, data: bytes, at: int, left: int, phy_offset: int) -> ScannedRecord | None:
        """Check the record at ``at``; return ``None`` for a blank record."""
        size = record_span(data, at, left, phy_offset)
        if not size:
            return None
        rules = self._rules
        message = check_record(
            data[at : at + size], phy_offset,
            check_crc=rules.check_crc, property_crc=rules.property_crc,
        )  # fmt: skip
        record = ScannedRecord(
            phy_offset, size, message.topic, message.queue_id, message.queue_offset,
            message.sys_flag, message.store_timestamp, message.properties_bytes,
        )  # fmt: skip
        if self._whole_only and (b"\0" in record.properties or "\0" in record.topic):
            refuse_lost_end(self._log, record)
        return record


def _crc_matches(
    data: bytes, starts: _Int64s, ends: _Int64s, wanted: NDArray[np.void]
) -> NDArray[np.bool_]:
    """Return which bodies match their CRC; empty bodies always match."""
    crc = zlib.crc32
    found = [crc(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    matches = np.array(found, np.int64) & CRC_MASK == wanted
    return np.asarray(matches | (starts == ends))


def _ordinary_units(
    heads: NDArray[np.void], topics: _Int64s, codes: _Int64s, ordinary: NDArray[np.bool_]
) -> ScannedUnits:
    """Return the units of the queued records that do not need the slow path."""
    flags = heads["sys_flag"]
    if flags.any():
        kinds, kind_of = np.unique(flags, return_inverse=True)
        ordinary &= np.array([is_queued(flag) for flag in kinds.tolist()])[kind_of]
    if not ordinary.all():
        heads, topics, codes = heads[ordinary], topics[ordinary], codes[ordinary]
    rows = np.empty(len(heads), UNIT_ROWS)
    rows["phy_offset"] = heads["phy_offset"]
    rows["size"] = heads["total_size"]
    rows["store_timestamp"] = heads["store_timestamp"]
    rows["tags_code"] = codes
    queues = topics << _ID_BITS | heads["queue_id"].astype(np.int64) & _ID_MASK
    return ScannedUnits(queues, heads["queue_offset"].astype(np.int64), rows)


def together(parts: Sequence[ScannedUnits]) -> ScannedUnits:
    """Return the concatenated units of all ``parts``."""
    tables = [row_table(part.rows) for part in parts]  # numpy would swap the bytes of fields
    return ScannedUnits(
        np.concatenate([part.queues for part in parts]),
        np.concatenate([part.queue_offsets for part in parts]),
        np.concatenate(tables).view(UNIT_ROWS)[:, 0],
    )


def queue_of(number: int) -> tuple[int, int]:
    """Return the topic's number and the queue id of a number in ``ScannedUnits.queues``."""
    queue_id = number & _ID_MASK
    return number >> _ID_BITS, queue_id - (queue_id >> (_ID_BITS - 1) << _ID_BITS)


def _walk(data: bytes) -> tuple[_Int64s, int]:
    """Return the probable starts of the complete records in ``data``, and where they end."""
    unpack, size_of_all = _SIZE.unpack_from, len(data)
    last = size_of_all - MIN_RECORD_SIZE
    starts: list[int] = []
    append, at = starts.append, 0
    while at <= last:
        (size,) = unpack(data, at)
        end = at + size
        if size < MIN_RECORD_SIZE or end > size_of_all:
            break
        append(at)
        at = end
    return np.array(starts, np.int64), at


def _from_tuples(found: list[tuple[int, ...]]) -> ScannedUnits | None:
    """Return units of rows (queue, queue offset, fields of the unit); ``None`` without rows."""
    if not found:
        return None
    table = np.array(found, np.int64)
    rows = np.empty(len(found), UNIT_ROWS)
    for column, name in enumerate(("phy_offset", "size", "tags_code", "store_timestamp"), 2):
        rows[name] = table[:, column]
    return ScannedUnits(table[:, 0].copy(), table[:, 1].copy(), rows)


def _together(ordinary: ScannedUnits, more: ScannedUnits | None) -> list[ScannedUnits]:
    """Return the units of both in log order."""
    if more is None:
        return [ordinary] if len(ordinary.rows) else []
    queues, queue_offsets, rows = together([ordinary, more])
    order = np.argsort(rows["phy_offset"].astype(np.int64), kind="stable")
    return [ScannedUnits(queues[order], queue_offsets[order], rows[order])]
