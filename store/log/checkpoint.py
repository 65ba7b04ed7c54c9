"""StoreCheckpoint: the file ``checkpoint``, 4096 bytes of which 48 are used.

Source: RocketMQ 5.5.1 ``StoreCheckpoint`` (5.3.3 knows the first five fields).
"""

from pathlib import Path
from typing import Annotated, NamedTuple

from cqstore.store.errors import TruncatedRecordError, os_errors
from cqstore.store.files import read_file, replace_file
from cqstore.store.path_kind import exists
from cqstore.store.record.layout import Layout, Wire

FILE_SIZE = 4096
_SAFETY_MS = 3000


class CheckpointFields(NamedTuple):
    """What the file holds."""

    physic_msg_timestamp: Annotated[
        int, Wire("q", "store time of the last record that the log has on disk, ms")
    ]
    logics_msg_timestamp: Annotated[
        int, Wire("q", "store time of the last record whose file queue unit is on disk, ms")
    ]
    index_msg_timestamp: Annotated[
        int, Wire("q", "store time of the last record whose keys are on disk, ms")
    ]
    master_flushed_offset: Annotated[int, Wire("q", "a slave's note of its master, bytes")]
    confirm_phy_offset: Annotated[
        int, Wire("q", "start of the last valid record, bytes; 0 if unknown")
    ]
    logics_phy_offset: Annotated[
        int, Wire("q", "start of a record up to which file queues are on disk, bytes")
    ]


CHECKPOINT = Layout(CheckpointFields)


class StoreCheckpoint:
    """The checkpoint of one store; every change is in memory until ``flush``."""

    def __init__(self, path: Path) -> None:
        """Read ``path``; all zeros if there is none. Changes nothing.

        Raises:
            TruncatedRecordError: the file is shorter than its fields.
            CorruptionError: it is longer than it may be, or no regular file.
            StoreIOError: it cannot be read.
        """
        self.path = path
        self.fields = CheckpointFields(0, 0, 0, 0, 0, 0)
        self._padding = bytes(FILE_SIZE - CHECKPOINT.size)
        if not exists(path):
            return
        with os_errors("read the checkpoint", path):
            data = read_file(path, FILE_SIZE)
        if len(data) < CHECKPOINT.size:
            raise TruncatedRecordError(
                "the checkpoint is too short", path=path,
                expected=f"at least {CHECKPOINT.size} bytes", got=f"{len(data)} bytes",
            )  # fmt: skip
        self.fields = CHECKPOINT.unpack_from(data)
        self._padding = data[CHECKPOINT.size :].ljust(FILE_SIZE - CHECKPOINT.size, b"\0")

    @property
    def min_timestamp(self) -> int:
        """Return the time up to which log and file queues are surely on disk, ms; 0 if unknown."""
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
        """Write the file and sync it: a new file beside it first, then the name (no torn file).

        Raises:
            StoreIOError: it cannot be written; the old one is unchanged.
        """
        data = CHECKPOINT.pack(self.fields) + self._padding
        with os_errors("write the checkpoint", self.path):
            replace_file(self.path, data)
