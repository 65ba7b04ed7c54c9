"""Archive of Parquet files in folders: a batch is added by one rename."""

import errno
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from pathlib import Path

from cqstore.analysis.archive.staging import Staging, remove_dead, staging
from cqstore.cli.message_files.archive_manifest import (
    ArchivedSource,
    Manifest,
    batch_folder,
    batch_numbers,
    read_manifest,
)
from cqstore.store.errors import RefusedStoreError, os_errors
from cqstore.store.files import sync_folder
from cqstore.store.path_kind import exists

_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}


class ParquetArchive:
    """Archive of Parquet files in ``folder``, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        """Check the folder without changing it.

        Raises:
            RefusedStoreError: the folder contains other files.
            StoreIOError: it cannot be read.
        """
        self._folder = folder
        self._seen = max(batch_numbers(folder), default=0)
        with os_errors("list the archive", folder):
            names = sorted(each.name for each in folder.iterdir()) if exists(folder) else []
        strange = [name for name in names if not name.startswith(("batch=", "_", "."))]
        if strange:
            raise RefusedStoreError(
                f"this folder is not an archive: it contains {strange[0]}", path=folder
            )

    def last(self, names: Iterable[str]) -> dict[str, ArchivedSource]:
        """Return the entry of each of these sources in its newest batch.

        Raises:
            CorruptionError: the manifest of a batch is damaged.
            StoreIOError: one cannot be read.
        """
        wanted, found = set(names), dict[str, ArchivedSource]()
        for number in reversed(batch_numbers(self._folder)):
            if number <= self._seen and wanted - found.keys():
                for source in self._manifest(number).sources:
                    if source.name in wanted:
                        found.setdefault(source.name, source)
        return found

    def remove_dead(self) -> None:
        """Remove the files of killed runs."""
        remove_dead(self._folder)

    def staging(self) -> AbstractContextManager[Staging]:
        """Create a staging folder for the block."""
        return staging(self._folder)

    def add(self, made: Staging, sources: Collection[str]) -> int:
        """Add the staged batch durably; return its number.

        Raises:
            RefusedStoreError: another run has archived one of ``sources`` since ``last``.
            StoreIOError: the batch cannot be renamed.
        """
        while True:
            self._check_newer(sources)
            number = self._seen + 1
            target = batch_folder(self._folder, number)
            with os_errors("add a batch to the archive", target):
                try:
                    made.batch.rename(target)
                except OSError as exc:
                    if exc.errno not in _TAKEN:
                        raise
                    continue
                sync_folder(self._folder)
            self._seen = number
            return number

    def _check_newer(self, sources: Collection[str]) -> None:
        """Refuse if a batch added since ``last`` contains one of ``sources``."""
        for number in batch_numbers(self._folder):
            if number > self._seen:
                for source in self._manifest(number).sources:
                    if source.name in sources:
                        raise RefusedStoreError(
                            f"another run has archived {source.name} in the meantime: nothing was"
                            " added",
                            path=self._folder,
                        )
                self._seen = number

    def _manifest(self, number: int) -> Manifest:
        return read_manifest(batch_folder(self._folder, number))
