"""``cqstore migrate``: move queues between the backends, and prove them equal."""

import typer

app = typer.Typer(
    help="Move queues between files and RocksDB, and prove them equal.", no_args_is_help=True
)
