"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

from ab.run_command import run_command

app = typer.Typer(
    help="Compare backends on the data of a store: answers first, then figures.",
    no_args_is_help=True,
)


@app.callback()
def ab() -> None:
    """Compare backends on the data of a store: answers first, then figures."""


app.command("run")(run_command)
