"""``cqstore archive``: adds new messages of logs to an archive of Parquet files.

Spark is imported only if there is something to archive.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cqstore.analysis.options import SourceOptions
from cqstore.cli.options import CommitLogFolder, ConfigFile, Rows, meant, note
from cqstore.cli.output import RowFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.spark.spark_session import refuse_without_spark, spark_session
from cqstore.store.errors import RefusedStoreError, StoreConfigError
from cqstore.store.path_kind import exists, is_dir
from cqstore.store.service.layout.root_folder import refuse_in_store

if TYPE_CHECKING:
    from cqstore.analysis.archive.archive_run import Archive, ArchivedRun
    from cqstore.analysis.archive.log_ranges import LogRange


class ArchiveFormat(StrEnum):
    """Value of ``--format``."""

    PARQUET = "parquet"
    ICEBERG = "iceberg"


Roots = Annotated[
    list[Path], typer.Argument(metavar="DIR", help="Root of each store (storePathRootDir).")
]
Target = Annotated[
    Path,
    typer.Option(
        "--to", metavar="FOLDER", help="Folder of the archive; created if it does not exist."
    ),
    OutputPath(locked=False),
]
SourceNames = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="NAME",
        help="Name of the log in the archive, once per DIR. Default: the path of DIR.",
    ),
]  # fmt: skip
Kind = Annotated[ArchiveFormat, typer.Option("--format", help="Format of the archive.")]
Master = Annotated[
    str, typer.Option(metavar="URL", help="Spark master, such as local[4] or spark://HOST:7077.")
]


def archive(
    roots: Roots,
    target: Target,
    names: SourceNames = None,
    kind: Kind = ArchiveFormat.PARQUET,
    out: Rows = RowFormat.TABLE,
    master: Master = "local[*]",
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
) -> None:
    """Add new messages to an archive, by topic and day. Changes nothing in DIR.

    Each run adds the messages that the archive does not have yet. An interrupted run adds nothing.
    To load an archive into a store, use cqstore import. Needs the extra 'spark' and Java 17. Exit
    code 1 if damaged data was skipped, or if messages expired before they were archived.

    Examples:
        cqstore archive DIR --to FOLDER
        cqstore archive DIR --to FOLDER --source broker-a --format iceberg
    """
    if commit_log is not None and len(roots) > 1:
        raise typer.BadParameter("--commitlog can be used with only one DIR")
    sources = {
        name: SourceOptions(path=root.absolute(), config=config, commitlog=commit_log)
        for name, root in zip(_named(roots, names), map(_root, roots), strict=True)
    }
    for options in sources.values():
        options.check_root()
    _check_target(target, roots)
    refuse_without_spark()
    from cqstore.analysis.archive.archive_run import plan_run  # noqa: PLC0415 - likewise

    found = open_archive(kind, target.absolute())  # tasks have a folder of their own
    ranges = plan_run(found, sources)
    done = _run(found, ranges, master)
    lost = {span.source: span.lost_bytes for span in ranges if span.lost_bytes}
    for source, lost_bytes in lost.items():
        note(f"{source}: {lost_bytes} bytes of the log were deleted before they were archived")
    for fault in done.faults:
        note(f"skipped: {fault}")
    output(out).rows(
        {"source": each.name, "begin": each.begin, "end": each.end, "messages": each.messages}
        for each in done.sources
    )
    note("nothing to archive" if done.batch is None else f"batch {done.batch}: {done.files} files")
    if lost or done.faults:
        raise typer.Exit(1)


def _check_target(target: Path, roots: Sequence[Path]) -> None:
    """Refuse an archive path that is a file, below a file, or inside one of the stores.

    Raises:
        RefusedStoreError: the path is one of these.
    """
    refuse_in_store(target, "archive", *roots)
    place = target.absolute().resolve()
    there = next(each for each in (place, *place.parents) if exists(each))
    if not is_dir(there):
        raise RefusedStoreError("this is a file, not an archive folder", path=there)


def _named(roots: Sequence[Path], names: Sequence[str] | None) -> Sequence[str]:
    """Return the name of each source.

    Raises:
        typer.BadParameter: there are more or fewer names than folders.
        StoreConfigError: two sources have the same name, or a name is empty.
    """
    if names and len(names) != len(roots):
        raise typer.BadParameter(
            f"found {len(names)} names for {len(roots)} stores: give one --source per DIR"
        )
    found = names or [str(root.resolve()) for root in roots]
    twice = [name for name, count in Counter(found).items() if count > 1]
    if twice or "" in found:
        raise StoreConfigError(
            f"two sources have the name {twice[0]!r}" if twice else "the name of a source is empty"
        )
    return found


def _root(root: Path) -> Path:
    found = meant(root)
    assert found is not None
    return found


def open_archive(kind: ArchiveFormat, target: Path) -> "Archive":
    """Return the archive in a folder, which may not exist yet.

    Raises:
        RefusedStoreError: the folder contains other files.
        StoreConfigError: the extra for this format is not installed.
        StoreIOError: the folder cannot be read.
    """
    if kind is ArchiveFormat.ICEBERG:
        from cqstore.analysis.archive.iceberg_archive import IcebergArchive  # noqa: PLC0415 - an extra

        return IcebergArchive(target)
    from cqstore.analysis.archive.parquet_archive import ParquetArchive  # noqa: PLC0415 - likewise

    return ParquetArchive(target)


def _run(archive: "Archive", ranges: "Sequence[LogRange]", master: str) -> "ArchivedRun":
    """Archive the ranges; Spark is started only if there is something to read."""
    from cqstore.analysis.archive.archive_run import run  # noqa: PLC0415 - needs the extra
    from cqstore.analysis.archive.spark_job import SETTINGS, on_spark  # noqa: PLC0415 - likewise

    if not any(span.parts for span in ranges):
        return run(archive, ranges, lambda *_: [])
    with spark_session("cqstore archive", master, settings=SETTINGS) as spark:
        return run(archive, ranges, partial(on_spark, spark))
