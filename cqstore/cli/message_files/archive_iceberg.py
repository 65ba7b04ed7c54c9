"""Reader of an archive that is an Iceberg table: its catalog and batches. Requires pyiceberg."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from cqstore.cli.message_files.archive_manifest import CATALOG, ArchivedFile
from cqstore.store.errors import RefusedStoreError, StoreConfigError

DATA = "data"
TABLE = ("rocketmq", "messages")
_BATCH = re.compile(r"batch=(\d+)/(.+)")


def open_catalog(folder: Path) -> Any:
    """Return the catalog in ``folder``; its files are synced before it references them.

    Raises:
        StoreConfigError: pyiceberg is not installed.
    """
    try:
        kind = import_module("pyiceberg.catalog.sql").SqlCatalog
    except ImportError as exc:
        raise StoreConfigError("Iceberg needs pyiceberg: pip install 'cqstore[iceberg]'") from exc
    catalog = kind(
        "cqstore",
        **{
            "uri": f"sqlite:///{folder / CATALOG}", "warehouse": f"file://{folder}",
            "py-io-impl": "cqstore.cli.message_files.archive_iceberg_io.SyncedFileIO",
        },
    )  # fmt: skip
    catalog.close()
    # A table outlives its catalog's scope: without a pool, no connection stays open with it.
    sqlalchemy = import_module("sqlalchemy")
    catalog.engine = sqlalchemy.create_engine(catalog.engine.url, poolclass=sqlalchemy.NullPool)
    return catalog


def table_batches(folder: Path) -> Iterator[tuple[Path, list[ArchivedFile]]]:
    """Yield the folder and files of each batch of the table, in batch number order.

    Raises:
        StoreConfigError: pyiceberg is not installed.
        RefusedStoreError: the table has files that were not written by ``cqstore archive``.
    """
    data = folder.absolute() / DATA
    found: dict[int, list[ArchivedFile]] = {}
    for task in open_catalog(folder.absolute()).load_table(TABLE).scan().plan_files():
        file = task.file
        path = file.file_path.removeprefix("file://").removeprefix(f"{data}/")
        match = _BATCH.fullmatch(path)
        if match is None or task.delete_files:
            raise RefusedStoreError(
                f"the table was rewritten by another program, its row order is lost: {path}",
                path=folder,
            )
        found.setdefault(int(match[1]), []).append(
            ArchivedFile(
                path=match[2], topic=file.partition[0], messages=file.record_count,
                size=file.file_size_in_bytes,
            )
        )  # fmt: skip
    for number in sorted(found):
        yield data / f"batch={number:08d}", found[number]
