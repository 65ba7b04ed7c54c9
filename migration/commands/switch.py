"""``cqstore migrate switch``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, read_config, to_state
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.migration.commands.options import workspace_of
from cqstore.migration.report_record import report_record
from cqstore.migration.switch.switch import switch as switch_to
from cqstore.store.service.offline.mode import StoreMode


def switch(
    root: Dir,
    to: Annotated[
        StoreMode | None, to_state("State to go to; default: the new backend alone.")
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", metavar="PATH", help="Maybe that of a copy of this store."),
        OutputPath(locked=False, in_own_folder=True),
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
            root, read_config(config, root), to=to, workspace=workspace_of(root, workspace),
            without=without or (), accept_older_tables=accept_older_tables, tell=tick.set_label,
        )  # fmt: skip
    output(kind).record(report_record(report))
