"""``cqstore migrate switch``."""

from typing import Annotated

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, read_config, to_state
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.migration.commands.options import Space, workspace_of
from cqstore.migration.report_record import report_record
from cqstore.migration.switch.switch import switch as switch_to
from cqstore.store.service.offline.mode import StoreMode


def switch(
    root: Dir,
    to: Annotated[
        StoreMode | None, to_state("Target state. Default: the new backend alone.")
    ] = None,
    workspace: Space = None,
    *,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Publish the verified queues in the store, catch up from the log, and serve them.

    Stop the broker first. The old queues stay in place and are no longer updated; a rollback
    catches them up from the log. Topics, groups and consumer offsets are converted to the form that
    the next broker reads. --workspace may name the workspace of a copy of the store.

    Examples:
        cqstore migrate switch DIR
        cqstore migrate switch DIR --workspace COPY/cqstore/migration
    """
    with progress("switching") as tick:
        report = switch_to(
            root, read_config(config, root), to=to, workspace=workspace_of(root, workspace),
            without=without or (), accept_older_tables=accept_older_tables, on_event=tick.set_label,
        )  # fmt: skip
    output(kind).record(report_record(report))
