"""The verb ``cqstore usage``."""

from collections.abc import Container
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.model import BrokerMetadata, Form
from cqstore.broker.metadata.topic_source import require_topics
from cqstore.broker.one_form import end_with_faults, note_remarks, read_one_form
from cqstore.broker.ranking import Limit, Sort, ranked
from cqstore.broker.usage.owner_usage import Owners, OwnersPass, UsageBy, total_bytes
from cqstore.broker.usage.usage_rows import COLUMNS, usage_rows
from cqstore.cli.limited import BoundedAnswer
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    note,
    open_store,
)
from cqstore.cli.output import RowFormat, output
from cqstore.cli.progress import progress
from cqstore.store.errors import StoreConfigError
from cqstore.store.service.message_store import MessageStore
from cqstore.store.service.opening.components import components_of

RowOf = Annotated[
    UsageBy, typer.Option(help="Print one row per topic, group, parent topic or day (UTC).")
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="Count only topics whose names start with TEXT.")
]
Unused = Annotated[
    bool, typer.Option("--unused", help="Show only topics that are not in the broker's metadata.")
]
UnusedForm = Annotated[
    Form | None,
    typer.Option(
        "--form",
        help="Form of the metadata that the broker reads, if DIR has several. Needs --unused.",
    ),
]


def usage(
    root: Dir,
    by: RowOf = UsageBy.TOPIC,
    sort: Sort = "bytes",
    limit: Limit = 0,
    prefix: Prefix = "",
    *,
    unused: Unused = False,
    form: UnusedForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Show log usage per topic, group, parent topic or day. Changes nothing.

    Counts units and bytes from the queues, without expired units. A group includes its retry and
    dead-letter topics, a parent topic its lite topics. Units of light queues point to records of
    other topics, so the totals exclude them. Times are store times in ms. Totals are on standard
    error. With --by group, exit code 1 if metadata cannot be read.

    --unused shows topics that have queues but are not in the metadata. A broker with RocksDB queues
    deletes these topics. Light queues and the broker's own topics are left out. The command refuses
    if the metadata is missing or damaged.

    Examples:
        cqstore usage DIR --limit 20
        cqstore usage DIR --unused --form json
    """
    if (unused and by is not UsageBy.TOPIC) or (form is not None and not unused):
        raise StoreConfigError("--unused requires --by topic, and --form requires --unused")
    with open_store(root, config, backend, commit_log) as store:
        known = _known_topics(store, form, config) if unused else None
        metadata = _metadata(store, by)
        owners = _count(store, by, prefix, known, metadata)
        bounded = BoundedAnswer()
        found = ranked(usage_rows(owners, by), sort, COLUMNS[by], limit, bounded)
        output(kind).rows(found, bounded.has_more)
        note(_totals(store, owners))
    note_remarks(metadata)
    end_with_faults([fault for each in metadata for fault in each.faults])


def _count(
    store: MessageStore, by: UsageBy, prefix: str, known: Container[str] | None,
    metadata: list[BrokerMetadata],
) -> Owners:  # fmt: skip
    """Return owner → total of its queues, and show the progress.

    The progress is in bytes for all topics, and in queues for a part of the topics.
    """
    groups = {group for each in metadata for group in each.groups}
    of_queues = bool(prefix) or known is not None
    if of_queues:
        shown = progress("counting", components_of(store).queues.queues_estimate(), "queues")
    else:
        log = components_of(store).log
        shown = progress("counting", log.max_phy_offset() - max(log.min_phy_offset(), 0))
    with shown as tick:
        return OwnersPass(store, by, prefix, known, groups, tick, of_queues=of_queues).owners()


def _totals(store: MessageStore, owners: Owners) -> str:
    """Return the totals of all owners and the size of the log as a sentence."""
    log = components_of(store).log
    units = sum(each.total.units for each in owners.values())
    light = sum(each.light.units for each in owners.values())
    return (
        f"{total_bytes(owners)} bytes in {units} units, plus {light} units in light queues; "
        f"the log has {log.max_phy_offset() - log.min_phy_offset()} bytes"
    )


def _known_topics(store: MessageStore, form: Form | None, config: Path | None) -> Container[str]:
    """Return the topics that the metadata configures.

    Raises:
        RefusedStoreError: see ``read_one_form`` and ``require_topics``.
    """
    return require_topics(read_one_form(components_of(store).paths, form, config))


def _metadata(store: MessageStore, by: UsageBy) -> list[BrokerMetadata]:
    """Return the metadata in all its forms if rows are per group."""
    return read_forms(components_of(store).paths) if by is UsageBy.GROUP else []
