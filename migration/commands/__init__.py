"""``cqstore migrate``: move queues between the backends, and verify the result."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Move consume queues between files and RocksDB, and verify the result.",
    no_args_is_help=True,
)

add_verb(
    app, "preflight", "cqstore.migration.commands.preflight:preflight_command",
    "Check whether the queues can be moved, and list the problems. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "plan", "cqstore.migration.commands.plan:plan",
    "Write a plan to move all queues. Changes nothing of the store.",
)  # fmt: skip
add_verb(
    app, "run", "cqstore.migration.commands.run:run",
    "Build the planned queues in the workspace; run it again to continue after a stop.",
)  # fmt: skip
add_verb(
    app, "verify", "cqstore.migration.commands.verify:verify_command",
    "Compare the new queues of a migration with the old queues and the commit log.",
)  # fmt: skip
add_verb(
    app, "switch", "cqstore.migration.commands.switch:switch",
    "Publish the verified queues in the store, catch up from the log, and serve them.",
)  # fmt: skip
add_verb(
    app, "follow", "cqstore.migration.commands.follow:follow_command",
    "Move the store of a running broker into the new folder NEW by replicating it.",
    has_progress=False,
)  # fmt: skip
add_verb(
    app, "rollback", "cqstore.migration.commands.rollback:rollback",
    "Undo the migration: remove the new queues, or after a switch serve the old ones again.",
)  # fmt: skip
add_verb(
    app, "tables", "cqstore.migration.commands.tables:tables",
    "Convert the broker's tables to the form that the next broker reads.",
)  # fmt: skip
add_verb(
    app, "finish", "cqstore.migration.commands.finish:finish",
    "End the migration: move the old queues to DIR/cqstore/replaced.",
)  # fmt: skip
add_verb(
    app, "status", "cqstore.migration.commands.status:status",
    "Show the progress of the migration. Changes nothing.",
)  # fmt: skip
