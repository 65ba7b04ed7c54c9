"""``cqstore groups``, ``usage`` and ``pending``: what an operator asks of a store at rest."""

import typer

from store.cli.verbs import add_verb

groups = typer.Typer()

add_verb(
    groups, "groups", "operating.groups:groups",
    "Show how far each consumer group lags, by group, topic or queue. Changes nothing.",
)  # fmt: skip

usage = typer.Typer()

add_verb(
    usage, "usage", "operating.usage:usage",
    "Show what fills the log: units and bytes by topic, group, parent or day. Changes nothing.",
)  # fmt: skip

pending = typer.Typer()

add_verb(
    pending, "pending", "operating.pending:pending",
    "Show messages that wait: delayed, timer and half messages. Changes nothing.",
)  # fmt: skip
