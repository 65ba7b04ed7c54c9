"""File access for pyiceberg that syncs each metadata file before another file refers to it."""

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from cqstore.store.files import sync_folder


class _SyncedStream(io.FileIO):
    """A file that is synced to disk, with its folder entry, when it is closed."""

    def close(self) -> None:
        if not self.closed:
            os.fsync(self.fileno())
            sync_folder(Path(str(self.name)).parent)
        super().close()


class _SyncedFile(PyArrowFile):
    """A file of an Iceberg table that is synced when it is closed after a write."""

    def create(self, overwrite: bool = False) -> Any:  # noqa: FBT001, FBT002 - pyiceberg's
        path = Path(self.location.removeprefix("file://"))
        path.parent.mkdir(parents=True, exist_ok=True)
        return _SyncedStream(path, "wb" if overwrite else "xb")


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's file access that syncs written files."""

    def new_output(self, location: str) -> Any:
        """Return the file to write."""
        given = super().new_output(location)
        return _SyncedFile(
            location=location, path=location.removeprefix("file://"), fs=given._filesystem,  # noqa: SLF001
            buffer_size=given._buffer_size,  # noqa: SLF001
        )  # fmt: skip
