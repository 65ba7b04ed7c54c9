"""``cqstore migrate tables``."""

from typing import Annotated

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, read_config, to_state
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.migration.report_record import report_record
from cqstore.migration.switch.metadata_steps import prepare_for
from cqstore.store.service.offline.mode import StoreMode


def tables(
    root: Dir,
    to: Annotated[
        StoreMode | None,
        to_state("State of the next broker. Default: the current state of the store."),
    ] = None,
    *,
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Convert the broker's tables to the form that the next broker reads.

    The tables are topics, groups and consumer offsets. Stop the broker first, and pass the
    configuration file of the next broker with --config. A second call changes nothing more. The
    commands migrate switch, migrate rollback, migrate follow and mode --to convert the tables too.

    Examples:
        cqstore migrate tables DIR --config broker.conf
        cqstore migrate tables DIR --to rocksdb
    """
    with progress("switching") as tick:
        report = prepare_for(
            root, read_config(config, root), to=to, without=without or (),
            accept_older_tables=accept_older_tables, on_event=tick.set_label,
        )  # fmt: skip
    output(kind).record(report_record(report))
