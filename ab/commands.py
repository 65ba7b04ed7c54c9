"""``cqstore ab``: compare backends on a store's own data, offline and live."""

import typer

app = typer.Typer(
    help="Compare backends on the data of a store: answers first, then figures.",
    no_args_is_help=True,
)


@app.callback()
def ab() -> None:
    """Compare backends on the data of a store: answers first, then figures."""
