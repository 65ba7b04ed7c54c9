"""Archive as an Apache Iceberg table: a batch is one snapshot, with the end offset of each log.

pyiceberg adds the files that the tasks have written. Spark does not read the format, so its version
does not matter. The catalog is a SQLite file in the folder of the table:

    FOLDER/catalog.db, FOLDER/metadata/…, FOLDER/data/batch=00000001/topic=…/day=…/…

Needs the extra ``iceberg``.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

from cqstore.analysis.archive.file_writer import FILES
from cqstore.analysis.archive.staging import Staging, remove_dead, staging
from cqstore.cli.message_files.archive_iceberg import DATA, TABLE, open_catalog
from cqstore.cli.message_files.archive_manifest import (
    CATALOG,
    ArchivedSource,
    batch_folder,
    batch_numbers,
    read_manifest,
)
from cqstore.store.errors import RefusedStoreError, StoreIOError, os_errors
from cqstore.store.files import make_folder, sync_folder
from cqstore.store.path_kind import exists

_OURS = {CATALOG, "metadata", DATA}
_SOURCE = "cqstore.source."
_BATCH = "cqstore.batch"
_RETRIES = "commit.retry.num-retries"
"""pyiceberg (0.12) tries a commit again over whatever came first: it would add rows twice."""


class IcebergArchive:
    """Archive as an Iceberg table in ``folder``, which may not exist yet."""

    def __init__(self, folder: Path) -> None:
        """Check the folder without changing it.

        Raises:
            RefusedStoreError: the folder contains other files.
            StoreConfigError: pyiceberg is not installed.
            StoreIOError: the folder cannot be read.
        """
        self._folder = folder.absolute()
        self._seen: dict[str, str] = {}
        with os_errors("list the archive", folder):
            names = sorted(each.name for each in folder.iterdir()) if exists(folder) else []
        strange = [name for name in names if name not in _OURS and not name.startswith(("_", "."))]
        if strange:
            raise RefusedStoreError(
                f"this folder is not an Iceberg archive: it contains {strange[0]}", path=folder
            )

    def last(self, names: Iterable[str]) -> dict[str, ArchivedSource]:
        """Return the entry of each of these sources in the newest snapshot.

        Raises:
            StoreIOError: the table cannot be read.
        """
        if not exists(self._folder / CATALOG):
            return {}
        with _failures(self._folder):
            properties = self._table().properties
        self._seen = {key: text for key, text in properties.items() if key.startswith(_SOURCE)}
        return {
            name: ArchivedSource.model_validate_json(self._seen[_SOURCE + name])
            for name in names
            if _SOURCE + name in self._seen
        }

    def remove_dead(self) -> None:
        """Remove the files of killed runs; data files only if no run is in progress."""
        data = self._folder / DATA
        if remove_dead(self._folder) or not (numbers := batch_numbers(data)):
            return
        known = int(self._table().properties.get(_BATCH, 0))
        for number in numbers:
            if number > known:
                rmtree(batch_folder(data, number), ignore_errors=True)

    @contextmanager
    def staging(self) -> Iterator[Staging]:
        """Create a staging folder for the block, and the table if it does not exist."""
        with _failures(self._folder):
            self.remove_dead()
        with staging(self._folder) as made, _failures(self._folder):
            yield made

    def add(self, made: Staging, sources: Collection[str]) -> int:
        """Add the staged batch as one snapshot; return its number.

        Raises:
            RefusedStoreError: another run has archived one of ``sources`` since ``last``.
            StoreIOError: something cannot be written.
        """
        from pyiceberg.exceptions import CommitFailedException  # noqa: PLC0415 - an extra

        number, place = self._placed(made)
        manifest = read_manifest(place)
        paths = [f"file://{place / each.path}" for each in manifest.files]
        states = {_SOURCE + each.name: each.model_dump_json() for each in manifest.sources}
        while True:
            table = self._table()
            meanwhile = [name for name in sources if self._is_newer(table, name)]
            if meanwhile:
                place.rename(made.batch)
                raise RefusedStoreError(
                    f"another run has archived {meanwhile[0]} in the meantime: nothing was added",
                    path=self._folder,
                )
            newest = max(number, int(table.properties.get(_BATCH, 0)))
            change = table.transaction()
            change.set_properties({**states, _BATCH: str(newest)})
            if paths:
                change.add_files(paths, check_duplicate_files=False)
            try:
                change.commit_transaction()
            except CommitFailedException:  # another run was first: whose?
                continue
            return number

    def _placed(self, made: Staging) -> tuple[int, Path]:
        """Move the batch to the data folder of the table; readers do not see it yet."""
        data = self._folder / DATA
        with os_errors("add a batch to the archive", data):
            make_folder(data)
            while True:
                number = max(batch_numbers(data), default=0) + 1
                place = batch_folder(data, number)
                try:
                    made.batch.rename(place)
                except OSError:
                    if exists(place):
                        continue
                    raise
                sync_folder(data)
                return number, place

    def _is_newer(self, table: Any, name: str) -> bool:
        return bool(table.properties.get(_SOURCE + name) != self._seen.get(_SOURCE + name))

    def _table(self) -> Any:
        """Return the current table; create it if it does not exist."""
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra
        from pyiceberg.transforms import DayTransform  # noqa: PLC0415 - likewise

        catalog = open_catalog(self._folder)
        try:
            table = catalog.load_table(TABLE)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(TABLE[0])
            made = catalog.create_table_transaction(
                TABLE, FILES, location=f"file://{self._folder}", properties={_RETRIES: "0"}
            )
            with made.update_spec() as spec:
                spec.add_identity("topic")
                spec.add_field("storeTimestamp", DayTransform(), "day")
            return made.commit_transaction()
        if table.properties.get(_RETRIES) != "0":  # it was set by hand
            table = table.transaction().set_properties({_RETRIES: "0"}).commit_transaction()
        return table


@contextmanager
def _failures(folder: Path) -> Iterator[None]:
    """Convert errors of the catalog's database into a ``StoreIOError``."""
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - of an extra

    try:
        yield
    except SQLAlchemyError as exc:
        first = str(exc).splitlines()[0]
        raise StoreIOError(
            f"cannot access the catalog of the Iceberg table: {first}", path=folder
        ) from exc
