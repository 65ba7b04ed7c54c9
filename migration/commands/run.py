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
                root, workspace=workspace_of(root, workspace), master=master,
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
