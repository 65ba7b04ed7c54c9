"""``cqstore clean``: shows and deletes log files that have expired by RocketMQ's rules."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from cqstore.cli.options import (
    WOULD_BE_DELETED,
    ConfigFile,
    Dir,
    Format,
    Yes,
    note,
    open_to_delete,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.table import Row
from cqstore.store.service.maintenance.disk_levels import DiskDemand, DiskPercents
from cqstore.store.service.maintenance.file_expiry import FileOutlook
from cqstore.store.settings.config import StoreConfig


def clean(
    root: Dir,
    *,
    yes: Yes = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show which commit log files have expired and why. Delete them with --yes.

    The rules are those of RocketMQ, at any hour: files not written for fileReservedTime hours
    expire. If the disk is nearly full, up to deleteFileBatchMax more files expire. Queue units and
    index entries are deleted with them.

    The last file is never deleted. The command is refused while the store is open. Without --yes,
    it changes nothing.

    Examples:
        cqstore clean DIR --config broker.conf
        cqstore clean DIR --config broker.conf --yes
    """
    with open_to_delete(root, config, yes=yes) as store:
        settings = store.config
        demand, files = store.expiring_files()
        going = [file for file in files if file.goes]
        if yes and going:
            report = store.delete_expired_files(going[-1].end)
            going = [file for file in going if file.end <= report.min_phy_offset]
            if report.fault is not None:
                raise report.fault
    output(kind).rows(_rows(files))
    note(_levels(demand, settings))
    done = "deleted" if yes else WOULD_BE_DELETED
    size = sum(file.file_size for file in going)
    if "file_reserved_time" not in settings.model_fields_set:
        note(f"fileReservedTime is {settings.file_reserved_time} hours by default (see --config)")
    note(f"{len(going)} of {len(files)} log files, {size} bytes, {done}")


def _rows(files: Iterable[FileOutlook]) -> Iterator[Row]:
    """Yield a row for each log file: whether it is deleted, and why."""
    for file in files:
        yield {
            "phyOffset": file.file_from_offset,
            "bytes": file.file_size,
            "lastWritten": datetime.fromtimestamp(file.written, UTC).isoformat(timespec="seconds"),
            "goes": file.goes,
            "reason": file.reason,
        }


def _levels(demand: DiskDemand, settings: StoreConfig) -> str:
    """Return a sentence on the disk usage and on what a running store deletes because of it."""
    used = [f"{percent} %" if percent >= 0 else "unknown"
            for percent in (demand.log_percent, demand.queues_percent)]  # fmt: skip
    when = (
        f"up to {DiskPercents.of(settings).max_used} % (diskMaxUsedSpaceRatio), a running store"
        f" deletes expired files only at the hours {settings.delete_when} (deleteWhen)"
    )
    if demand.delete:
        when = "a running store deletes expired files at any hour (diskMaxUsedSpaceRatio)"
    if demand.at_once:
        when = (
            "a running store deletes the oldest files even if they have not expired"
            " (diskSpaceCleanForciblyRatio)"
        )
    return f"used disk space: {used[0]} (commit log), {used[1]} (queues); {when}"
