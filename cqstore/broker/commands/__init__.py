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


add_verb(
    groups_app, "show", "cqstore.broker.commands.groups_show:groups",
    "Show the lag of consumer groups, per group, topic or queue. Changes nothing.",
)  # fmt: skip
add_verb(
    groups_app, "reset", "cqstore.broker.commands.groups_change:reset_offsets",
    "Reset a group's offsets in a topic to the start, the end, an offset or a time.",
)  # fmt: skip
add_verb(
    groups_app, "copy", "cqstore.broker.commands.groups_change:copy_offsets",
    "Copy consumer offsets from one group to another, except for retry topics.",
)  # fmt: skip
add_verb(
    groups_app, "forget", "cqstore.broker.commands.groups_change:forget_offsets",
    "Remove the offsets of a group, so that it starts like a new group.",
)  # fmt: skip

usage_app = typer.Typer()

add_verb(
    usage_app, "usage", "cqstore.broker.commands.usage:usage",
    "Show log usage per topic, group, parent topic or day. Changes nothing.",
)  # fmt: skip

pending_app = typer.Typer()

add_verb(
    pending_app, "pending", "cqstore.broker.commands.pending:pending",
    "Show pending messages: delayed, timer and half messages. Changes nothing.",
)  # fmt: skip

dlq_app = typer.Typer()

add_verb(
    dlq_app, "dlq", "cqstore.broker.commands.dlq:dlq",
    "Count dead letters, or print those of one consumer group. Changes nothing.",
)  # fmt: skip

meta_app = typer.Typer(
    cls=DefaultGroup,
    help="Show, check, repair and convert topics, groups and offsets of a broker.",
    no_args_is_help=True,
)


@meta_app.callback()
def metadata_of_brokers() -> None:
    """Show, check, repair and convert topics, groups and offsets of a broker."""


add_verb(
    meta_app, "show", "cqstore.broker.commands.meta_show:show",
    "Show or check topics, groups and offsets of a broker. Changes nothing.",
)  # fmt: skip
add_verb(
    meta_app, "convert", "cqstore.broker.commands.meta_convert:convert_command",
    "Convert topics, groups and offsets of a stopped broker to another form.",
)  # fmt: skip
add_verb(
    meta_app, "repair", "cqstore.broker.commands.meta_repair:repair",
    "Repair unreadable JSON metadata files of a stopped broker.",
)  # fmt: skip
add_verb(
    meta_app, "make-topics", "cqstore.broker.commands.meta_repair:make_topics",
    "Add topics that have queues but no configuration to topics.json.",
)  # fmt: skip
