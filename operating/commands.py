"""``cqstore groups``: what an operator asks of a store at rest."""

import typer

from store.cli.verbs import add_verb

app = typer.Typer()

add_verb(
    app, "groups", "operating.groups:groups",
    "Show how far each consumer group lags, by group, topic or queue. Changes nothing.",
)  # fmt: skip
