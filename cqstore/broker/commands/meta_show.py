"""The verb ``cqstore meta show``, also called by ``cqstore meta DIR``."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.metadata.findings import MetadataSeverity, MetaFinding
from cqstore.broker.metadata.form_checks import check_forms
from cqstore.broker.metadata.forms import NO_METADATA, read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form, Offsets, Table
from cqstore.broker.metadata.placing import is_placing
from cqstore.broker.metadata.queue_checks import check_queues
from cqstore.broker.one_form import end_with_faults, note_remarks
from cqstore.cli.options import (
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    check_is_there,
    open_store,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import counted, progress
from cqstore.cli.table import Row
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.path_kind import exists, matching
from cqstore.store.paths import StorePaths
from cqstore.store.service.opening.components import components_of


class Shown(StrEnum):
    """The tables that ``cqstore meta show`` can print."""

    FORMS = "forms"
    TOPICS = "topics"
    GROUPS = "groups"
    OFFSETS = "offsets"
    DELAYS = "delays"


What = Annotated[
    Shown,
    typer.Argument(
        metavar="TABLE", help="Table to show: forms, topics, groups, offsets or delays."
    ),
]
OneForm = Annotated[Form | None, typer.Option("--form", help="Show only this form.")]


def show(
    root: Dir,
    what: What = Shown.FORMS,
    form: OneForm = None,
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Report problems, also against the queues, instead of a table."
        ),
    ] = False,
    config: ConfigFile = None,
    commit_log: CommitLogFolder = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Show or check topics, groups and offsets of a broker. Changes nothing.

    A store may have several forms of metadata (JSON or RocksDB); each row names its form. Without
    TABLE, lists the forms with their sizes and change counters. If a JSON file is torn, its .bak is
    read, as in a broker. Exit code 1 if a file or a row cannot be read.

    With --check, reports forms that disagree, and data versions that make a broker ignore a form.
    It also reports ambiguous names, and offsets and topics that do not match the queues. Exit code
    1 if there is a warning.

    Examples:
        cqstore meta show DIR
        cqstore meta show DIR offsets --form json --output jsonl
    """
    found = forms_of(root, form)
    if check:
        _show_findings(root, found, config, commit_log, kind)
        return
    count = sum(_COUNTS[what](each) for each in found)
    output(kind).rows(counted(_ROWS[what](found), "showing", count, "rows"))
    note_remarks(found)
    end_with_faults([fault for each in found for fault in each.faults])


def forms_of(root: Path, form: Form | None) -> list[BrokerMetadata]:
    """Return the metadata of a folder in all its forms, or only in ``form``.

    Raises:
        RefusedStoreError: the folder does not exist or has no such metadata.
    """
    check_is_there(root)
    with progress("reading the metadata"):
        found = [each for each in read_forms(StorePaths(root)) if form in {None, each.form}]
    if not found:
        missing = "config/" if form is None else f"config/ in the form {form}"
        raise RefusedStoreError(f"{NO_METADATA} in {missing}", path=root)
    return found


def _show_findings(
    root: Path,
    found: Sequence[BrokerMetadata],
    config: Path | None,
    commit_log: Path | None,
    kind: OutputFormat,
) -> None:
    """Print the findings about the metadata; exit code 1 if there is a warning."""
    findings = _unfinished(root)
    findings += [*check_forms(found), *_queue_findings(root, found, config, commit_log)]
    findings.sort(key=lambda finding: finding.severity is not MetadataSeverity.WARN)
    output(kind).rows(asdict(finding) for finding in findings)
    if any(finding.severity is MetadataSeverity.WARN for finding in findings):
        raise typer.Exit(1)


def _unfinished(root: Path) -> list[MetaFinding]:
    paths = StorePaths(root)
    if not is_placing(paths):
        return []
    sentence = "A conversion was interrupted. Finish it with cqstore meta convert --yes."
    journal = [str(paths.placing_metadata)]
    return [MetaFinding("", MetadataSeverity.WARN, "conversion-unfinished", sentence, journal, 1)]


def _queue_findings(
    root: Path, found: Sequence[BrokerMetadata], config: Path | None, commit_log: Path | None
) -> list[MetaFinding]:
    """Return the findings about mismatches between metadata and queues."""
    paths = StorePaths(root, commit_log)
    if not (exists(paths.commit_log) or matching(root, "consumequeue*")):
        sentence = (
            "The folder has neither commit log nor consume queues: the metadata was not compared"
            " with queues."
        )
        return [MetaFinding("", MetadataSeverity.INFO, "no-queues", sentence)]
    try:
        with open_store(root, config, None, commit_log) as store:
            about = components_of(store).queues.queues_estimate()
            spans = counted(store.queue_spans(), "comparing", about, "queues")
            return list(check_queues(found, spans))
    except StoreError as exc:
        sentence = "The queues cannot be read: the metadata was not compared with queues."
        return [
            MetaFinding("", MetadataSeverity.WARN, "queues-unreadable", sentence, [str(exc)], 1)
        ]


def _forms(found: Sequence[BrokerMetadata]) -> Iterator[Row]:
    """Yield a row for each form of the metadata."""
    for each in found:
        versions = {
            f"{table}Counter": each.versions[table].counter if table in each.versions else None
            for table in Table
        }
        yield {
            "form": each.form.value,
            "path": str(each.path),
            "topics": len(each.topics),
            "groups": len(each.groups),
            "offsets": sum(map(len, each.offsets.values())),
            "pullOffsets": sum(map(len, each.pull_offsets.values())),
            "delayLevels": len(each.delay_offsets),
            **versions,
            "faults": len(each.faults),
        }


def _topics(found: Sequence[BrokerMetadata]) -> Iterator[Row]:
    for each in found:
        for name, config in sorted(each.topics.items()):
            yield {"form": each.form.value, "topic": name, "config": config}


def _groups(found: Sequence[BrokerMetadata]) -> Iterator[Row]:
    for each in found:
        for name, config in sorted(each.groups.items()):
            forbidden = each.forbidden.get(name, {})
            yield {
                "form": each.form.value, "group": name, "config": config, "forbidden": forbidden,
            }  # fmt: skip


def _offsets(found: Sequence[BrokerMetadata]) -> Iterator[Row]:
    """Yield a row for each offset of each form."""
    for each in found:
        for table, offsets in (("offset", each.offsets), ("pullOffset", each.pull_offsets)):
            for key, queue_id, offset in _rows_of(offsets):
                yield {
                    "form": each.form.value, "topicAtGroup": key, "queueId": queue_id,
                    "kind": table, "offset": offset,
                }  # fmt: skip


def _rows_of(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    for key, row in sorted(offsets.items()):
        for queue_id, offset in sorted(row.items()):
            yield key, queue_id, offset


def _delays(found: Sequence[BrokerMetadata]) -> Iterator[Row]:
    first = found[0]  # the file is the same for every form
    for level, offset in sorted(first.delay_offsets.items()):
        yield {"level": level, "offset": offset}


def _offset_count(found: BrokerMetadata) -> int:
    return sum(len(row) for each in (found.offsets, found.pull_offsets) for row in each.values())


_COUNTS: dict[Shown, Callable[[BrokerMetadata], int]] = {
    Shown.FORMS: lambda _: 1,
    Shown.TOPICS: lambda found: len(found.topics),
    Shown.GROUPS: lambda found: len(found.groups),
    Shown.OFFSETS: _offset_count,
    Shown.DELAYS: lambda found: len(found.delay_offsets),
}
"""Table → number of rows per form. Delays are counted per form but shown once; they are few."""
_ROWS = {
    Shown.FORMS: _forms,
    Shown.TOPICS: _topics,
    Shown.GROUPS: _groups,
    Shown.OFFSETS: _offsets,
    Shown.DELAYS: _delays,
}
