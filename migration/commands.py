"""``cqstore migrate``: move queues between the backends, and prove them equal."""

import typer

from migration.preflight.command import preflight_command

app = typer.Typer(
    help="Move queues between files and RocksDB, and prove them equal.", no_args_is_help=True
)
app.command("preflight")(preflight_command)
