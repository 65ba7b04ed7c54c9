"""``cqstore meta``, ``groups``, ``usage``, ``pending`` and ``dlq``."""

import typer

from cqstore.cli.lazy_verbs import DefaultGroup, add_verb

groups_app = typer.Typer(
    cls=DefaultGroup,
    help="Show the lag of consumer groups, and change offsets of a stopped broker.",
    no_args_is_help=True,
)


@groups_app.callback()
def groups_of_consumers() -> None:
    """Show the lag of consumer groups, and change offsets of a stopped broker."""


add_verb(groups_app, "show", "cqstore.broker.commands.groups_show:groups")
add_verb(groups_app, "reset", "cqstore.broker.commands.groups_change:reset_offsets")
add_verb(groups_app, "copy", "cqstore.broker.commands.groups_change:copy_offsets")
add_verb(groups_app, "forget", "cqstore.broker.commands.groups_change:forget_offsets")

usage_app = typer.Typer()

add_verb(usage_app, "usage", "cqstore.broker.commands.usage:usage")

pending_app = typer.Typer()

add_verb(pending_app, "pending", "cqstore.broker.commands.pending:pending")

dlq_app = typer.Typer()

add_verb(dlq_app, "dlq", "cqstore.broker.commands.dlq:dlq")

meta_app = typer.Typer(
    cls=DefaultGroup,
    help="Show, check, repair and convert topics, groups and offsets of a broker.",
    no_args_is_help=True,
)


@meta_app.callback()
def metadata_of_brokers() -> None:
    """Show, check, repair and convert topics, groups and offsets of a broker."""


add_verb(meta_app, "show", "cqstore.broker.commands.meta_show:show")
add_verb(meta_app, "convert", "cqstore.broker.commands.meta_convert:convert_command")
add_verb(meta_app, "repair", "cqstore.broker.commands.meta_repair:repair")
add_verb(meta_app, "make-topics", "cqstore.broker.commands.meta_repair:make_topics")
