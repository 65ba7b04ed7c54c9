"""One run: reads the new part of each log, writes it, and adds it to the archive in one step."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from cqstore.analysis.archive.log_ranges import LogRange, plan_range
from cqstore.analysis.archive.spark_job import Job
from cqstore.analysis.archive.staging import Staging
from cqstore.analysis.options import SourceOptions
from cqstore.cli.message_files.archive_manifest import ArchivedSource


class Archive(Protocol):
    """Archive of message batches: folders of Parquet files, or an Iceberg table."""

    def last(self, names: Iterable[str]) -> dict[str, ArchivedSource]:
        """Return the entry of each of these sources in its newest batch."""

    def remove_dead(self) -> None:
        """Remove the files of killed runs."""

    def staging(self) -> AbstractContextManager[Staging]:
        """Create a staging folder for the block; it is removed afterwards."""

    def add(self, made: Staging, sources: Collection[str]) -> int:
        """Add the staged batch, completely or not at all; return its number."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """Result of one run."""

    sources: Sequence[ArchivedSource]
    batch: int | None
    """Number of the batch; ``None`` if nothing was new."""
    files: int
    faults: Sequence[str]
    """Damage that was skipped."""


def plan_run(archive: Archive, sources: Mapping[str, SourceOptions]) -> list[LogRange]:
    """Return the new range of each source, by name.

    Raises:
        RefusedStoreError: a log is not the one that was archived under its name.
        StoreError: a log or the archive cannot be read.
    """
    before = archive.last(sources)
    return [plan_range(name, options, before.get(name)) for name, options in sources.items()]


def run(archive: Archive, ranges: Sequence[LogRange], job: Job) -> ArchivedRun:
    """Archive the ranges. The archive is unchanged unless the last step completes.

    Raises:
        RefusedStoreError: another run has archived one of these logs in the meantime.
        CorruptionError: a log is damaged, and the record after the damage cannot be found.
        StoreError: something cannot be read or written.
    """
    # The rows of a file are in this order, too.
    new = sorted(
        (span for span in ranges if span.begin < span.end or span.lost_bytes),
        key=lambda span: span.source,
    )
    if not new:
        archive.remove_dead()
        return ArchivedRun([_archived(span, 0) for span in ranges], None, 0, [])
    with archive.staging() as made:
        found = job(new, made.files) if any(span.parts for span in new) else []
        written = [each for each in found if each.name]
        counts = {span.source: 0 for span in ranges}
        for each in written:
            for source, messages in each.messages.items():
                counts[source] += messages
        sources = [_archived(span, counts[span.source]) for span in new]
        made.lay_out(written, sources)
        number = archive.add(made, {span.source for span in new})
    faults = [fault for each in found for fault in each.faults]
    every = [_archived(span, counts[span.source]) for span in ranges]
    return ArchivedRun(every, number, len(written), faults)


def _archived(span: LogRange, messages: int) -> ArchivedSource:
    return ArchivedSource(
        name=span.source, begin=span.begin, end=span.end, mark=span.mark, messages=messages
    )
