"""``cqstore groups reset``, ``copy``, ``forget``: change the group offsets of a stopped broker."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.commands.meta_repair import stopped_store
from cqstore.broker.groups.group_lag import near_groups
from cqstore.broker.groups.group_offsets import (
    OffsetChange,
    Target,
    changed,
    copy,
    forget,
    reset,
    reset_target,
)
from cqstore.broker.metadata.changing import change_tables
from cqstore.broker.metadata.convert import refuse_unless_whole
from cqstore.broker.metadata.forms import read_forms
from cqstore.broker.metadata.json_repair import next_version
from cqstore.broker.metadata.model import BrokerMetadata, Form, Table, readings
from cqstore.broker.one_form import BrokerForm, read_one_form
from cqstore.cli.commands.offset import milliseconds
from cqstore.cli.options import (
    Backend,
    CommitLogFolder,
    ConfigFile,
    Dir,
    Rows,
    Yes,
    java_int,
    note,
    open_store,
)
from cqstore.cli.output import RowFormat, output
from cqstore.store.errors import RefusedStoreError
from cqstore.store.journals.store_lock import StoreLock
from cqstore.store.paths import StorePaths
from cqstore.store.service.message_store import MessageStore

COLUMNS = ("group", "topic", "queueId", "before", "after")
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Consumer group.")]
Topics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="T", help="Change only this topic; may be repeated."),
]


def reset_offsets(
    root: Dir,
    group: Group,
    topic: Annotated[str, typer.Option(metavar="T", help="Topic whose offsets to reset.")],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="N", help="Target: earliest, latest, or a queue offset."),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Target: first message stored at or after this time; ms, or ISO 8601 (UTC if"
            " bare).",
        ),
    ] = None,
    queue_id: Annotated[
        int | None,
        typer.Option(metavar="Q", min=0, callback=java_int, help="Reset only this queue id."),
    ] = None,
    *,
    yes: Yes = False,
    form: BrokerForm = None,
    config: ConfigFile = None,
    backend: Backend = None,
    commit_log: CommitLogFolder = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Reset a group's offsets in a topic to the start, the end, an offset or a time.

    The broker must be stopped. Give either --to or --time. A queue without an offset gets one.
    Without --yes, nothing is changed. The old metadata is kept in DIR/cqstore/replaced.

    Examples:
        cqstore groups reset DIR order-consumers --topic orders --to latest
        cqstore groups reset DIR g1 --topic orders --time 2026-11-01 --yes
    """
    target = _target(to, time)

    def plan(found: BrokerMetadata) -> list[OffsetChange]:
        with open_store(root, config, backend, commit_log) as store:
            return list(reset(store, found, group, topic, queue_id, target(store)))

    _run(root, group, form, plan, kind, yes=yes, config=config)


def copy_offsets(
    root: Dir,
    source: Annotated[str, typer.Argument(metavar="FROM", help="Group to copy from.")],
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Group to copy to.")],
    topic: Topics = None,
    *,
    yes: Yes = False,
    form: BrokerForm = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Copy consumer offsets from one group to another, except for retry topics.

    The broker must be stopped. Offsets of GROUP in topics that FROM does not consume stay as they
    are. Without --yes, nothing is changed. The old metadata is kept in DIR/cqstore/replaced.

    Examples:
        cqstore groups copy DIR order-consumers order-audit
        cqstore groups copy DIR order-consumers order-audit --topic orders --yes
    """
    if source == group:
        raise RefusedStoreError(f"cannot copy offsets: FROM and GROUP are both {group!r}")

    def plan(found: BrokerMetadata) -> list[OffsetChange]:
        return _some(copy(found, source, group, topic or ()), source, found)

    _run(root, group, form, plan, kind, yes=yes)


def forget_offsets(
    root: Dir,
    group: Group,
    topic: Topics = None,
    *,
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", help="Also remove the subscription group; not allowed with --topic."
        ),
    ] = False,
    yes: Yes = False,
    form: BrokerForm = None,
    kind: Rows = RowFormat.TABLE,
) -> None:
    """Remove the offsets of a group, so that it starts like a new group.

    The broker must be stopped. Offsets in retry topics are removed too. Without --yes, nothing is
    changed. The old metadata is kept in DIR/cqstore/replaced.

    Examples:
        cqstore groups forget DIR old-consumers
        cqstore groups forget DIR old-consumers --settings --yes
    """
    if settings and topic:
        raise typer.BadParameter("--topic cannot be combined with --settings")

    def plan(found: BrokerMetadata) -> list[OffsetChange]:
        changes = forget(found, group, topic or ())
        if settings and group in found.groups:
            return list(changes)
        return _some(changes, group, found)

    _run(root, group, form, plan, kind, yes=yes, settings=settings)


def _some(
    changes: Iterable[OffsetChange], group: str, metadata: BrokerMetadata
) -> list[OffsetChange]:
    """Return the changes as a list; refuse a group without offsets.

    Raises:
        RefusedStoreError: the group has no offsets.
    """
    found = list(changes)
    if not found:
        groups = {way[1] for key in metadata.offsets for way in readings(key)}
        hint = near_groups(group, groups - {group})
        raise RefusedStoreError(f"group {group!r} has no offsets{hint}")
    return found


def _target(to: str | None, time: str | None) -> Callable[[MessageStore], Target]:
    """Return the function that finds the offset of ``--to`` or ``--time`` in an open store.

    Raises:
        typer.BadParameter: neither or both are given, or the value is invalid.
    """
    if (to is None) == (time is None):
        raise typer.BadParameter("give either --to or --time")
    moment = None if time is None else milliseconds(time)
    if to in {None, "earliest", "latest"}:
        return lambda store: reset_target(store, to, moment)
    if to is None or not to.isascii() or not to.isdecimal():
        raise typer.BadParameter(
            f"invalid value {to!r} of --to: expected earliest, latest, or a queue offset"
        )
    offset = int(to)
    return lambda store: reset_target(store, offset, None)


def _run(
    root: Path, group: str, form: Form | None, plan: Callable[[BrokerMetadata], list[OffsetChange]],
    kind: RowFormat, *, yes: bool, settings: bool = False, config: Path | None = None,
) -> None:  # fmt: skip
    """Show the changes of a stopped broker's metadata; apply them if ``yes``."""
    paths = stopped_store(root)
    kept = None
    with StoreLock(paths) if yes else nullcontext():  # no topic can be deleted after the plan
        found = read_one_form(paths, form, config)
        refuse_unless_whole(found)
        changes = plan(found)
        if yes:
            kept = _change(paths, found, group, changes, settings=settings)
    output(kind).rows(dict(zip(COLUMNS, (group, *change), strict=True)) for change in changes)
    moved = sum(change.before != change.after for change in changes)
    if kept is not None:
        note(f"{moved} of {len(changes)} offsets changed; the previous metadata is in {kept}")
    elif yes:
        note("no offset needs to be changed")
    else:
        note(f"{moved} of {len(changes)} offsets would change (use --yes to apply)")


def _change(
    paths: StorePaths, found: BrokerMetadata, group: str, changes: Sequence[OffsetChange],
    *, settings: bool,
) -> Path | None:  # fmt: skip
    """Write the changed offsets; with ``settings``, remove the group's configuration too.

    Return the folder of the replaced files.
    """
    offsets = changed(found.offsets, group, changes)
    tables = {Table.OFFSETS} if offsets != found.offsets else set()
    made = replace(found, offsets=offsets, versions=dict(found.versions))
    if settings and (group in found.groups or group in found.forbidden):
        tables.add(Table.GROUPS)
        made.groups = {name: row for name, row in found.groups.items() if name != group}
        made.forbidden = {name: row for name, row in found.forbidden.items() if name != group}
    forms = read_forms(paths)
    for table in tables:
        made.versions[table] = next_version(forms, table)
    return change_tables(paths, made, sorted(tables)) if tables else None
