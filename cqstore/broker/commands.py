"""What an operator asks of a store at rest: ``cqstore groups``, ``usage``, ``pending``, ``dlq``."""

import typer

from cqstore.cli.lazy_verbs import DefaultGroup, add_verb

groups = typer.Typer(
    cls=DefaultGroup,
    help="Show how far consumer groups lag, and change offsets of a stopped broker.",
    no_args_is_help=True,
)


@groups.callback()
def groups_of_consumers() -> None:
    """Show how far consumer groups lag, and change offsets of a stopped broker."""


add_verb(
    groups, "show", "cqstore.broker.groups.groups_command:groups",
    "Show how far each consumer group lags, by group, topic or queue. Changes nothing.",
)  # fmt: skip
add_verb(
    groups, "reset", "cqstore.broker.groups.groups_change_command:reset_offsets",
    "Set the offsets of a group in a topic: to an end, an offset, or a time.",
)  # fmt: skip
add_verb(
    groups, "copy", "cqstore.broker.groups.groups_change_command:copy_offsets",
    "Give a group the offsets of another group, but for those of its retries.",
)  # fmt: skip
add_verb(
    groups, "forget", "cqstore.broker.groups.groups_change_command:forget_offsets",
    "Remove the offsets of a group, its retries' too: it begins as a new group does.",
)  # fmt: skip

usage = typer.Typer()

add_verb(
    usage, "usage", "cqstore.broker.usage.usage_command:usage",
    "Show what fills the log: units and bytes by topic, group, parent or day. Changes nothing.",
)  # fmt: skip

pending = typer.Typer()

add_verb(
    pending, "pending", "cqstore.broker.pending.pending_command:pending",
    "Show messages that wait: delayed, timer and half messages. Changes nothing.",
)  # fmt: skip

dlq = typer.Typer()

add_verb(
    dlq, "dlq", "cqstore.broker.dlq.dlq_command:dlq",
    "Show dead letters by group and original topic, or those of a group. Changes nothing.",
)  # fmt: skip
