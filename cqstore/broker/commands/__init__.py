"""``cqstore meta``, ``groups``, ``usage``, ``pending`` and ``dlq``."""

import typer

from cqstore.cli.lazy_verbs import DefaultGroup, add_verb

groups_app = typer.Typer(
    cls=DefaultGroup,
    help="Show how far consumer groups lag, and change offsets of a stopped broker.",
    no_args_is_help=True,
)


@groups_app.callback()
def groups_of_consumers() -> None:
    """Show how far consumer groups lag, and change offsets of a stopped broker."""


add_verb(
    groups_app, "show", "cqstore.broker.commands.groups_show:groups",
    "Show how far each consumer group lags, by group, topic or queue. Changes nothing.",
)  # fmt: skip
add_verb(
    groups_app, "reset", "cqstore.broker.commands.groups_change:reset_offsets",
    "Set the offsets of a group in a topic: to an end, an offset, or a time.",
)  # fmt: skip
add_verb(
    groups_app, "copy", "cqstore.broker.commands.groups_change:copy_offsets",
    "Give a group the offsets of another group, but for those of its retries.",
)  # fmt: skip
add_verb(
    groups_app, "forget", "cqstore.broker.commands.groups_change:forget_offsets",
    "Remove the offsets of a group, its retries' too: it begins as a new group does.",
)  # fmt: skip

usage_app = typer.Typer()

add_verb(
    usage_app, "usage", "cqstore.broker.commands.usage:usage",
    "Show what fills the log: units and bytes by topic, group, parent or day. Changes nothing.",
)  # fmt: skip

pending_app = typer.Typer()

add_verb(
    pending_app, "pending", "cqstore.broker.commands.pending:pending",
    "Show messages that wait: delayed, timer and half messages. Changes nothing.",
)  # fmt: skip

dlq_app = typer.Typer()

add_verb(
    dlq_app, "dlq", "cqstore.broker.commands.dlq:dlq",
    "Show dead letters by group and original topic, or those of a group. Changes nothing.",
)  # fmt: skip

meta_app = typer.Typer(
    cls=DefaultGroup,
    help="Show, check and convert topics, groups and consumer offsets of a broker.",
    no_args_is_help=True,
)


@meta_app.callback()
def metadata_of_brokers() -> None:
    """Show, check and convert topics, groups and consumer offsets of a broker."""


add_verb(
    meta_app, "show", "cqstore.broker.commands.meta_show:show",
    "Show topics, groups and consumer offsets of a broker, JSON or RocksDB. Changes nothing.",
)  # fmt: skip
add_verb(
    meta_app, "convert", "cqstore.broker.commands.meta_convert:convert_command",
    "Convert topics, groups and offsets of a stopped broker into another form.",
)  # fmt: skip
add_verb(
    meta_app, "repair", "cqstore.broker.commands.meta_repair:repair",
    "Repair JSON files of a stopped broker's metadata that it cannot read.",
)  # fmt: skip
add_verb(
    meta_app, "make-topics", "cqstore.broker.commands.meta_repair:make_topics",
    "Write a topics.json with a row for each topic that has queues and none.",
)  # fmt: skip
