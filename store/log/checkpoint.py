"""StoreCheckpoint: the file ``checkpoint``, 4096 bytes of which 48 are used.

The file is optional: without it recovery scans more of the log. The store opens with any content,
as in RocketMQ, which maps 4096 bytes of the file; missing bytes count as zero.

Source: RocketMQ 5.5.1 ``StoreCheckpoint`` (5.3.3 has the first five fields only).
"""

import os
from pathlib import Path
from typing import Annotated, NamedTuple

from cqstore.store.errors import CorruptionError, TruncatedRecordError, os_errors
from cqstore.store.files import reading, replace_file
from cqstore.store.path_kind import exists
from cqstore.store.record.layout import Layout, Wire

FILE_SIZE = 4096
_SAFETY_MS = 3000
_LAST_TIME = 1 << 42
"""Milliseconds, in the year 2109: a later time is not the store time of a record."""


class CheckpointFields(NamedTuple):
    """The fields of the file."""

    physic_msg_timestamp: Annotated[int, Wire("q", "store time of the last log record on disk, ms")]
    logics_msg_timestamp: Annotated[int, Wire("q", "same for file queue units")]
    index_msg_timestamp: Annotated[int, Wire("q", "same for index keys")]
    master_flushed_offset: Annotated[int, Wire("q", "flushed offset of a slave's master, bytes")]
    confirm_phy_offset: Annotated[
        int, Wire("q", "start of the last valid record, bytes; 0 if unknown")
    ]
    logics_phy_offset: Annotated[
        int, Wire("q", "file queues are on disk up to the record that starts here")
    ]


CHECKPOINT = Layout(CheckpointFields)
_NOTHING_KNOWN = CheckpointFields(0, 0, 0, 0, 0, 0)


def _may_be_true(fields: CheckpointFields) -> bool:
    """Return whether times and offsets are plausible; RocketMQ writes -1 for an unknown offset."""
    times = (fields.physic_msg_timestamp, fields.logics_msg_timestamp, fields.index_msg_timestamp)
    offsets = (fields.master_flushed_offset, fields.confirm_phy_offset, fields.logics_phy_offset)
    return all(0 <= time <= _LAST_TIME for time in times) and min(offsets) >= -1


class StoreCheckpoint:
    """The checkpoint of one store; changes stay in memory until ``flush``."""

    def __init__(self, path: Path) -> None:
        """Read ``path``; all fields are zero if it does not exist. Changes nothing.

        Raises:
            CorruptionError: ``path`` is not a regular file.
            StoreIOError: the file cannot be read.
        """
        self.path = path
        self.fields = _NOTHING_KNOWN
        self.fault: CorruptionError | None = None
        """Why the file is not as a writer leaves it; ``None``: it is valid, or does not exist."""
        self._padding = bytes(FILE_SIZE - CHECKPOINT.size)
        if not exists(path):
            return
        with os_errors("read the checkpoint", path), reading(path) as file:
            data, size = file.read(FILE_SIZE), os.fstat(file.fileno()).st_size
        data = data.ljust(FILE_SIZE, b"\0")
        self.fields, self._padding = CHECKPOINT.unpack_from(data), data[CHECKPOINT.size :]
        self.fault = self._fault(size)

    def _fault(self, size: int) -> CorruptionError | None:
        """Return the error of a file of ``size`` bytes; implausible fields become 0."""
        if not _may_be_true(self.fields):
            found, self.fields = self.fields, _NOTHING_KNOWN
            return CorruptionError(
                "the checkpoint holds invalid times or offsets", path=self.path, got=tuple(found)
            )
        if size < CHECKPOINT.size:
            return TruncatedRecordError(
                "the checkpoint is too short", path=self.path,
                expected=f"at least {CHECKPOINT.size} bytes", got=f"{size} bytes",
            )  # fmt: skip
        if size > FILE_SIZE:
            return CorruptionError(
                "the checkpoint is too long", path=self.path,
                expected=f"at most {FILE_SIZE} bytes", got=f"{size} bytes",
            )  # fmt: skip
        return None

    @property
    def min_timestamp(self) -> int:
        """Return the time in ms up to which log and file queues are on disk; 0 if unknown."""
        fields = self.fields
        known = min(fields.physic_msg_timestamp, fields.logics_msg_timestamp)
        return max(0, known - _SAFETY_MS)

    @property
    def logics_phy_offset(self) -> int:
        """Return the start of a record up to which file queues are on disk; 0 if unknown."""
        return self.fields.logics_phy_offset

    def update(self, **changes: int) -> None:
        """Set fields by name."""
        self.fields = self.fields._replace(**changes)

    def flush(self) -> None:
        """Write the file and sync it: a temporary file first, then a rename (no torn file).

        Raises:
            StoreIOError: the file cannot be written; the old one is unchanged.
        """
        data = CHECKPOINT.pack(self.fields) + self._padding
        with os_errors("write the checkpoint", self.path):
            replace_file(self.path, data)
