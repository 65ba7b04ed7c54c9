"""``cqstore migrate run``."""

from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Dir, Format, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.progress import progress
from cqstore.migration.commands.options import Master, Space, workspace_of
from cqstore.migration.report_record import report_record
from cqstore.migration.run.run import run_plan
from cqstore.migration.tasks import MASTER


def run(
    root: Dir,
    master: Master = MASTER,
    max_bytes_per_second: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Maximum write rate of all tasks together, in bytes/s. Default: no limit.",
        ),
    ] = None,
    workspace: Space = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Build the planned queues in the workspace; run it again to continue after a stop.

    Run migrate plan first. The store and its old queues do not change, and readers do not use the
    new queues before the switch. The plan contains the settings; a --config with other settings is
    refused. Ctrl-C keeps the finished segments and gives exit code 130.

    Examples:
        cqstore migrate run DIR --master none
        cqstore migrate run DIR --max-bytes-per-second 50000000
    """
    settings = None if config is None else read_config(config, root)
    with progress("moving", unit="units") as tick:
        try:
            report = run_plan(
                root, workspace=workspace_of(root, workspace), master=master,
                bytes_per_second=max_bytes_per_second, progress=tick.of, config=settings,
            )  # fmt: skip
        except KeyboardInterrupt:
            note("stopped; finished segments are kept. Run the command again to continue")
            raise typer.Exit(130) from None
    facts = report_record(report)
    if report.seconds:
        facts["unitsPerSecond"] = round(report.units / report.seconds)
    output(kind).record(facts)
    if report.shifted:
        note(
            f"{report.shifted} units have another queue offset than their records; they keep their"
            " queue offset"
        )
