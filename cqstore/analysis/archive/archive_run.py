"""One run: what is new in each log is read, written, and added to the archive in one step."""

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
    """Where batches of archived messages are kept: folders of Parquet, or an Iceberg table."""

    def last(self, names: Iterable[str]) -> dict[str, ArchivedSource]:
        """Return what the archive's newest batch of each of these sources says of it."""

    def remove_dead(self) -> None:
        """Remove what runs have left that were killed."""

    def staging(self) -> AbstractContextManager[Staging]:
        """Give a folder for what is to be added; gone behind the block."""

    def add(self, made: Staging, sources: Collection[str]) -> int:
        """Add a batch that is laid out, whole or not at all; return its number."""


@dataclass(frozen=True, slots=True)
class ArchivedRun:
    """What one run has added to the archive."""

    sources: Sequence[ArchivedSource]
    batch: int | None
    """Its number; ``None``: nothing was new."""
    files: int
    faults: Sequence[str]
    """What was passed over because it is damaged."""


def plan_run(archive: Archive, sources: Mapping[str, SourceOptions]) -> list[LogRange]:
    """Return what is new of each source, by name.

    Raises:
        RefusedStoreError: a log is not the one that the archive has under its name.
        StoreError: a log or the archive cannot be read.
    """
    before = archive.last(sources)
    return [plan_range(name, options, before.get(name)) for name, options in sources.items()]


def run(archive: Archive, ranges: Sequence[LogRange], job: Job) -> ArchivedRun:
    """Archive the ranges. Whatever ends it before its last step leaves the archive as it was.

    Raises:
        RefusedStoreError: another run has archived one of these logs meanwhile.
        CorruptionError: a log has a place behind which nothing can be read.
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
