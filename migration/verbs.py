"""The verbs of ``cqstore migrate``, two apart that have rooms of their own."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.conversion.conversion import NextBroker, plan_conversion
from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import (
    ConfigFile,
    Dir,
    Format,
    check_is_there,
    java_long,
    note,
    opened_by,
    read_config,
    to_state,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.cli.table import Row
from cqstore.migration.from_log.block_source import LOG
from cqstore.migration.from_log.rebuild_plan import make_log_plan
from cqstore.migration.plan.plan import Plan
from cqstore.migration.plan.planner import make_plan
from cqstore.migration.plan.segment_writer import SEGMENT_UNITS
from cqstore.migration.report_record import report_record
from cqstore.migration.rollback.deleted_topic_policy import DeletedTopicPolicy
from cqstore.migration.rollback.rollback import finish as finish_switch
from cqstore.migration.rollback.rollback import rollback as roll_back
from cqstore.migration.run.run import run_plan
from cqstore.migration.status import status as status_of
from cqstore.migration.switch.metadata_steps import prepare_for
from cqstore.migration.switch.switch import switch as switch_to
from cqstore.migration.tasks import MASTER, NO_SPARK
from cqstore.migration.workspace import Workspace
from cqstore.store.errors import RefusedStoreError, StoreError
from cqstore.store.paths import StorePaths
from cqstore.store.queue.bulk import bulk_names
from cqstore.store.service.layout.resolve_layout import resolve_layout
from cqstore.store.service.offline.mode import StoreMode
from cqstore.store.settings.config import StoreConfig

Space = Annotated[
    Path | None,
    typer.Option(
        "--workspace", metavar="PATH", help="Folder to work in; else DIR/cqstore/migration."
    ),
]
Master = Annotated[
    str,
    typer.Option(metavar="URL", help=f"Where Spark runs; {NO_SPARK}: without Spark, on all cores."),
]

Target = Annotated[
    str,
    typer.Option("--to", metavar="BACKEND", help=f"Where to: {' or '.join(bulk_names())}."),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="BACKEND",
        help=f"Which queues, if both are, {' or '.join(bulk_names())}; or log: from the log.",
    ),
]
SegmentUnits = Annotated[
    int, typer.Option(metavar="N", min=1, callback=java_long, help="Units of one task.")
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Poorer queues that are there already are moved away.")
]


def plan(
    root: Dir,
    to: Target = "rocksdb",
    source: Source = None,
    segment_units: SegmentUnits = SEGMENT_UNITS,
    *,
    replace: Replace = False,
    master: Master = MASTER,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Look at every queue and write down what is to be moved. Changes nothing of the store.

    With --from log the queues are built from the commit log alone: its files are scanned in tasks.
    The store may be open in another process, which is said: what that puts from now on is not
    planned, and the switch catches up with it.
    """
    space = _space(root, workspace)
    settings = read_config(config, root)
    opener = opened_by(root)
    with progress("planning", unit="units") as tick:
        if source == LOG and replace:
            raise RefusedStoreError(
                "--replace is not for --from log: cqstore rebuild DIR --backend builds queues that"
                " are there anew from the log, and keeps the old ones",
                path=root,
            )
        if source == LOG:
            made = make_log_plan(
                root, settings, target=to, master=master, workspace=space,
                segment_units=segment_units, progress=tick,
            ).plan  # fmt: skip
        else:
            made = make_plan(
                root, settings, target=to, source=source, workspace=space,
                segment_units=segment_units, replace=replace, progress=tick,
            )  # fmt: skip
    tables = _tables(root, settings, made.target)
    output(kind).record(_plan_row(made, opener, tables, space.plan))
    if opener:
        note(
            f"{root}: process {opener} has the store open and may be writing: what it puts from now"
            " on is not in the plan, and the switch, for which it has to stop, catches up with it"
        )


def _plan_row(made: Plan, opener: int, tables: object, file: Path) -> Row:
    """Return what is printed of a plan that lies in ``file``; ``opener`` has the store open."""
    return {
        "from": made.source, "to": made.target, "queues": made.queues, "units": made.units,
        "expiredQueues": made.expired, "emptyQueues": made.empty, "segments": len(made.segments),
        "completeTo": made.complete_to, "openedBy": opener or None, "plan": made.digest,
        "tables": tables, "file": str(file),
    }  # fmt: skip


def _tables(root: Path, settings: StoreConfig, to: str) -> object:
    """Return what a switch is to convert of the broker's tables, or why it would refuse to."""
    try:
        found = plan_conversion(StorePaths(root), NextBroker([to], settings))
    except StoreError as exc:
        return str(exc)
    return None if found is None else found.facts()


def run(
    root: Dir,
    master: Master = MASTER,
    max_bytes_per_second: Annotated[
        float | None, typer.Option(metavar="N", min=1, help="Of queues written, all tasks.")
    ] = None,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Move what is planned into new queues beside the store; run again, it goes on.

    Nothing of the store is changed, and no reader sees the new queues before the switch. The plan
    holds the settings that count; a --config that says otherwise is refused.
    """
    settings = None if config is None else read_config(config, root)
    with progress("moving", unit="units") as tick:
        try:
            report = run_plan(
                root, workspace=_space(root, workspace), master=master,
                bytes_per_second=max_bytes_per_second, progress=tick.of, config=settings,
            )  # fmt: skip
        except KeyboardInterrupt:
            note("stopped; what was moved is kept: run again to go on")
            raise typer.Exit(130) from None
    facts = report_record(report)
    if report.seconds:
        facts["unitsPerSecond"] = round(report.units / report.seconds)
    output(kind).record(facts)
    if report.shifted:
        note(
            f"{report.shifted} units lie at another place of their queue than their records say;"
            " they keep their place"
        )


def switch(
    root: Dir,
    to: Annotated[
        StoreMode | None, to_state("State to go to; default: the new backend alone.")
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", metavar="PATH", help="Maybe that of a copy of this store."),
    ] = None,
    *,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Put the verified queues into the store, catch them up from the log, and serve them.

    The old queues stay where they lie, marked as left behind; rollback catches them up. Topics,
    groups and offsets of the broker are converted into the form that the next broker reads.
    """
    with progress("switching") as tick:
        report = switch_to(
            root, read_config(config, root), to=to, workspace=_space(root, workspace),
            without=without or (), accept_older_tables=accept_older_tables, tell=tick.set_label,
        )  # fmt: skip
    output(kind).record(report_record(report))


def rollback(
    root: Dir,
    *,
    returning: Annotated[
        DeletedTopicPolicy | None,
        typer.Option("--returning", help="Topics that only the old queues have still."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what there is to be done.")
    ] = False,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Undo the migration: drop what was made, or after the switch serve the old queues again.

    Those catch up from the log first, and the new ones are moved to DIR/cqstore/replaced. Topics,
    groups and offsets of the broker are converted back, with what it changed since the switch.
    """
    with progress("switching") as tick:
        report = roll_back(
            root, read_config(config, root), workspace=_space(root, workspace), returning=returning,
            without=without or (), accept_older_tables=accept_older_tables, dry_run=dry_run,
            tell=tick.set_label,
        )  # fmt: skip
    if report is None:
        what = "would be" if dry_run else "are"
        note(f"nothing had been published; plan and new queues {what} removed")
        return
    facts = report_record(report)
    if dry_run:
        facts["caughtUpUnits"] = None  # not looked for
    output(kind).record(facts)


def tables(
    root: Dir,
    to: Annotated[
        StoreMode | None, to_state("State of the next broker; default: as it is.")
    ] = None,
    *,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Put the broker's tables into the form that a broker with these queues reads.

    After a step of cqstore mode --to, before the next start. Switch, rollback and follow do it
    themselves.
    """
    with progress("switching") as tick:
        report = prepare_for(
            root, read_config(config, root), to=to, without=without or (),
            accept_older_tables=accept_older_tables, tell=tick.set_label,
        )  # fmt: skip
    output(kind).record(report_record(report))


def finish(
    root: Dir,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """End the migration: the old queues move to DIR/cqstore/replaced, to be removed by you.

    There is no roll-back afterwards.
    """
    left = finish_switch(root, read_config(config, root), workspace=_space(root, workspace))
    output(kind).record({"movedAway": left, "to": str(StorePaths(root).replaced)})


def status(root: Dir, workspace: Space = None, kind: Format = OutputFormat.TABLE) -> None:
    """Show how far the migration is. Changes nothing."""
    space = _space(root, workspace)
    if not space.plan.exists():
        resolve_layout(root, StoreConfig(), None, read_only=True)  # refuses where no store is
    output(kind).record(status_of(root, space))


def _space(root: Path, given: Path | None) -> Workspace:
    check_is_there(root)
    return Workspace.of(root.absolute(), given)
