"""``cqstore follow``, ``feed`` and ``ha``: receive a log, serve one, and compare two."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

follow_app = typer.Typer()

add_verb(
    follow_app, "follow", "cqstore.replication.commands.follow:follow",
    "Receive the log of the running master at HOST:PORT into DIR, and build its queues.",
    progress_told=False,
)  # fmt: skip
feed_app = typer.Typer()

add_verb(
    feed_app, "feed", "cqstore.replication.commands.feed:feed",
    "Serve the log of the store in DIR to those who follow it, RocketMQ's slaves or ours.",
    progress_told=False,
)  # fmt: skip

ha_app = typer.Typer(
    cls=VerbGroup,
    help="Compare the logs of master and slave, and bring a former master back.",
    no_args_is_help=True,
)

add_verb(
    ha_app, "check", "cqstore.replication.commands.ha_check:check",
    "Compare two logs record by record, or one with a running master's. Changes nothing.",
)  # fmt: skip
add_verb(
    ha_app, "rejoin", "cqstore.replication.commands.ha_rejoin:rejoin",
    "Cut off FORMER what NEW does not have, so that it can follow NEW; shown first.",
)  # fmt: skip
