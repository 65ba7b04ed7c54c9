"""``cqstore follow``: receive the log of a running master."""

import typer

from store.cli.verbs import add_verb

app = typer.Typer()

add_verb(
    app, "follow", "replication.command:follow",
    "Receive the log of the running master at HOST:PORT into DIR, and build its queues.",
)  # fmt: skip
