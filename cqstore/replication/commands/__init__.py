"""``cqstore follow``, ``feed`` and ``ha``: receive a log, serve one, and compare two."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

follow_app = typer.Typer()

add_verb(follow_app, "follow", "cqstore.replication.commands.follow:follow", has_progress=False)
feed_app = typer.Typer()

add_verb(feed_app, "feed", "cqstore.replication.commands.feed:feed", has_progress=False)

ha_app = typer.Typer(
    cls=VerbGroup,
    help="Compare the logs of master and slave, or prepare a former master to follow.",
    no_args_is_help=True,
)

add_verb(ha_app, "check", "cqstore.replication.commands.ha_check:check")
add_verb(ha_app, "rejoin", "cqstore.replication.commands.ha_rejoin:rejoin")
