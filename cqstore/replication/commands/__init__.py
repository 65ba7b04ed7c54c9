"""``cqstore follow``, ``feed`` and ``ha``: receive a log, serve one, and compare two."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

follow_app = typer.Typer()

add_verb(
    follow_app, "follow", "cqstore.replication.commands.follow:follow",
    "Replicate the log of the running master at HOST:PORT to DIR and build its queues.",
    has_progress=False,
)  # fmt: skip
feed_app = typer.Typer()

add_verb(
    feed_app, "feed", "cqstore.replication.commands.feed:feed",
    "Serve the log of the store in DIR to RocketMQ slaves and cqstore follow.",
    has_progress=False,
)  # fmt: skip

ha_app = typer.Typer(
    cls=VerbGroup,
    help="Compare the logs of master and slave, or prepare a former master to follow.",
    no_args_is_help=True,
)

add_verb(
    ha_app, "check", "cqstore.replication.commands.ha_check:check",
    "Compare the logs of two stores or running masters. Changes nothing.",
)  # fmt: skip
add_verb(
    ha_app, "rejoin", "cqstore.replication.commands.ha_rejoin:rejoin",
    "Cut records from FORMER that NEW does not have, so that it can follow NEW.",
)  # fmt: skip
