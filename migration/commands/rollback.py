"""``cqstore migrate rollback``."""

from typing import Annotated

import typer

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.migration.commands.options import Space, note_kept_report, workspace_of
from cqstore.migration.report_record import report_record
from cqstore.migration.rollback.deleted_topic_policy import DeletedTopicPolicy
from cqstore.migration.rollback.rollback import rollback as roll_back
from cqstore.migration.switch.switch import SwitchReport
from cqstore.migration.workspace import Workspace


def rollback(
    root: Dir,
    *,
    returning: Annotated[
        DeletedTopicPolicy | None,
        typer.Option(
            "--returning",
            help="Keep or delete topics that only the old queues have. Needed if there are any.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done.")
    ] = False,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Undo the migration: remove the new queues, or after a switch serve the old ones again.

    Before a switch, the workspace is emptied. After a switch, stop the broker first: the old queues
    catch up from the log, and the new ones move to DIR/cqstore/replaced. Topics, groups and
    consumer offsets are converted back, including all changes since the switch. Queues built with
    plan --from log cannot be rolled back after the switch.

    Examples:
        cqstore migrate rollback DIR --dry-run
        cqstore migrate rollback DIR --returning delete
    """
    space = Workspace.of_switch(root, workspace_of(root, workspace))
    with progress("switching") as tick:
        report = roll_back(
            root, read_config(config, root), workspace=space,
            returning=returning, without=without or (),
            accept_older_tables=accept_older_tables, dry_run=dry_run, on_event=tick.set_label,
        )  # fmt: skip
    if report is None:
        removed = "would be removed" if dry_run else "were removed"
        note(f"the store was not switched; the plan and the new queues {removed}")
    else:
        _print(report, kind, dry_run=dry_run)
    if not dry_run:
        note_kept_report(space)


def _print(report: SwitchReport, kind: OutputFormat, *, dry_run: bool) -> None:
    """Print what was done, or would be."""
    facts = report_record(report)
    if dry_run:
        facts["caughtUpUnits"] = None  # not looked for
    output(kind).record(facts)
