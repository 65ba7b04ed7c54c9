"""SyncedMark: the file ``cqstore/synced``, the offset up to which the log is certainly on disk.

RocketMQ's format does not contain it. Invariant: the mark is never ahead of the synced offset. It
is updated some time after syncs of the log, so that no put waits for it, and it is lowered durably
before the log is truncated. RocketMQ does not use it, and may truncate and rewrite the log: the
mark is bound to the file ``lock``, which RocketMQ writes at each start, and is invalid after that,
and also in a copy of the store.

Two slots are written alternately, each in its own sector with a checksum, so one is always valid.
"""

import os
import threading
import zlib
from typing import Annotated, NamedTuple

from cqstore.store.concurrency.logger import StoreLogger
from cqstore.store.errors import CorruptionError, StoreIOError, os_errors
from cqstore.store.files import (
    Descriptor,
    file_identity,
    make_folder,
    read_file,
    replace_file,
    write_all,
)
from cqstore.store.paths import StorePaths
from cqstore.store.record.layout import Layout, Wire
from cqstore.store.record.record_layout import CRC_MASK

_LOG = StoreLogger(__name__)
_SLOT_BYTES = 512
_FILE_BYTES = 2 * _SLOT_BYTES


class MarkSlot(NamedTuple):
    """One slot of the file."""

    serial: Annotated[int, Wire("q", "sequence number; the newer slot's is larger")]
    phy_offset: Annotated[int, Wire("q", "the log was on disk up to here, bytes")]
    lock_inode: Annotated[int, Wire("q", "inode of `lock`")]
    lock_time_ns: Annotated[int, Wire("q", "change time of `lock`, ns since the epoch")]
    crc: Annotated[int, Wire("i", "`crc` of the 32 bytes before")]


MARK_SLOT = Layout(MarkSlot)
_CRC_AT = MARK_SLOT.offset("crc")


class SyncedMark:
    """The mark of one store. Any thread may call ``note``."""

    def __init__(self, paths: StorePaths) -> None:
        """Read the mark; changes nothing."""
        self._paths = paths
        self._file: Descriptor | None = None
        self._lock = threading.RLock()  # one thread at a time; a nested note does no harm
        self._serial = 0
        self._tie = _tie(paths)
        self.phy_offset = 0
        """Phy offset up to which the log was on disk; 0 if unknown."""
        slot = max(_slots(paths), default=None)
        if slot is not None and (slot.lock_inode, slot.lock_time_ns) == self._tie:
            self._serial, self.phy_offset = slot.serial, slot.phy_offset

    @property
    def is_known(self) -> bool:
        """Return whether the mark is valid for this log."""
        return self._serial > 0

    def begin(self, phy_offset: int) -> None:
        """Set the mark durably, also to a lower value; ``note`` can be called after that.

        Raises:
            StoreIOError: writing the mark failed.
        """
        path = self._paths.synced
        with os_errors("write the mark of the synced log end", path):
            if phy_offset != self.phy_offset or not self._serial:
                self._tie = _tie(self._paths)
                self.phy_offset = phy_offset
                make_folder(path.parent)
                replace_file(path, 2 * self._next().ljust(_SLOT_BYTES, b"\0"))
            self._file = Descriptor(path, os.O_RDWR)

    def note(self, phy_offset: int) -> None:
        """Record durably that the log is on disk up to ``phy_offset``.

        If writing fails, the mark keeps its old value, which is safe.
        """
        with self._lock:
            file = self._file
            if file is None or phy_offset <= self.phy_offset:
                return
            self.phy_offset = phy_offset
            slot = self._next()
            try:
                write_all(file.number, slot, self._serial % 2 * _SLOT_BYTES)
                os.fdatasync(file.number)
            except OSError as exc:
                self._file = None
                _LOG.warning("%s is no longer updated: %s", self._paths.synced, exc)

    def close(self) -> None:
        """Close the file."""
        self._file = None

    def _next(self) -> bytes:
        self._serial += 1
        data = MARK_SLOT.pack(MarkSlot(self._serial, self.phy_offset, *(self._tie or (0, 0)), 0))
        return data[:_CRC_AT] + _crc(data).to_bytes(4, "big")


def _crc(slot: bytes) -> int:
    return zlib.crc32(slot[:_CRC_AT]) & CRC_MASK


def _slots(paths: StorePaths) -> list[MarkSlot]:
    """Return the valid slots. A damaged mark is the same as a missing one."""
    try:
        with os_errors("read the mark of the synced log end", paths.synced):
            data = read_file(paths.synced, _FILE_BYTES)
    except (StoreIOError, CorruptionError) as exc:
        if not isinstance(exc.__cause__, FileNotFoundError):
            _LOG.warning("the end of the synced log is unknown: %s", exc)
        return []
    slots = []
    for at in (0, _SLOT_BYTES):
        slot = data[at : at + MARK_SLOT.size]
        if len(slot) == MARK_SLOT.size and MARK_SLOT.unpack_from(slot).crc == _crc(slot):
            slots.append(MARK_SLOT.unpack_from(slot))
    if data and not slots:
        _LOG.warning("%s is damaged: the end of the synced log is unknown", paths.synced)
    return slots


def _tie(paths: StorePaths) -> tuple[int, int] | None:
    """Return what changes when another process opens the store; ``None`` without a lock file."""
    return file_identity(paths.lock)
