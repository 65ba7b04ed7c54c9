"""``cqstore migrate``: move queues between the backends, and prove them equal."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Move queues between files and RocksDB, and prove them equal.",
    no_args_is_help=True,
)

add_verb(
    app, "preflight", "cqstore.migration.commands.preflight:preflight_command",
    "Say whether the queues may be moved, and with what problems. Changes nothing.",
)  # fmt: skip
add_verb(
    app, "plan", "cqstore.migration.commands.plan:plan",
    "Look at every queue and write down what is to be moved. Changes nothing of the store.",
)  # fmt: skip
add_verb(
    app, "run", "cqstore.migration.commands.run:run",
    "Move what is planned into new queues beside the store; run again, it goes on.",
)  # fmt: skip
add_verb(
    app, "verify", "cqstore.migration.commands.verify:verify_command",
    "Compare the queues that a migration made with those it began from, and with the log.",
)  # fmt: skip
add_verb(
    app, "switch", "cqstore.migration.commands.switch:switch",
    "Put the verified queues into the store, catch them up from the log, and serve them.",
)  # fmt: skip
add_verb(
    app, "follow", "cqstore.migration.commands.follow:follow_command",
    "Follow the running broker of the store DIR into NEW; once it has stopped, NEW is what it was.",
    progress_told=False,
)  # fmt: skip
add_verb(
    app, "rollback", "cqstore.migration.commands.rollback:rollback",
    "Undo the migration: drop what was made, or after the switch serve the old queues again.",
)  # fmt: skip
add_verb(
    app, "tables", "cqstore.migration.commands.tables:tables",
    "Put the broker's tables into the form that a broker with these queues reads.",
)  # fmt: skip
add_verb(
    app, "finish", "cqstore.migration.commands.finish:finish",
    "End the migration: the old queues move to DIR/cqstore/replaced, to be removed by you.",
)  # fmt: skip
add_verb(
    app, "status", "cqstore.migration.commands.status:status",
    "Show how far the migration is. Changes nothing.",
)  # fmt: skip
