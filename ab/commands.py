"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

from ab.live.command import live_command
from ab.live.policy_command import policy_command
from ab.report.command import report_command
from ab.report.compare import compare_command
from ab.running.command import run_command

app = typer.Typer(
    help="Compare backends on the data of a store: answers first, then figures.",
    no_args_is_help=True,
)


@app.callback()
def ab() -> None:
    """Compare backends on the data of a store: answers first, then figures."""


app.command("run")(run_command)
app.command("report")(report_command)
app.command("compare")(compare_command)
app.command("live")(live_command)
app.command("policy")(policy_command)
