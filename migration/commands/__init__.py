"""``cqstore migrate``: move queues between the backends, and verify the result."""

import typer

from cqstore.cli.lazy_verbs import VerbGroup, add_verb

app = typer.Typer(
    cls=VerbGroup,
    help="Move consume queues between files and RocksDB, and verify the result.",
    no_args_is_help=True,
)

add_verb(app, "preflight", "cqstore.migration.commands.preflight:preflight_command")
add_verb(app, "plan", "cqstore.migration.commands.plan:plan")
add_verb(app, "run", "cqstore.migration.commands.run:run")
add_verb(app, "verify", "cqstore.migration.commands.verify:verify_command")
add_verb(app, "switch", "cqstore.migration.commands.switch:switch")
add_verb(app, "follow", "cqstore.migration.commands.follow:follow_command", has_progress=False)
add_verb(app, "rollback", "cqstore.migration.commands.rollback:rollback")
add_verb(app, "tables", "cqstore.migration.commands.tables:tables")
add_verb(app, "finish", "cqstore.migration.commands.finish:finish")
add_verb(app, "status", "cqstore.migration.commands.status:status")
