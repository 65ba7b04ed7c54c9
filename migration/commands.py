"""``cqstore migrate``: move queues between the backends, and prove them equal."""

import typer

from migration.verify.command import verify_command

app = typer.Typer(
    help="Move queues between files and RocksDB, and prove them equal.", no_args_is_help=True
)
app.command(name="verify")(verify_command)
