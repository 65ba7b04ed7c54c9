"""``cqstore migrate follow``: move the store of a running broker in one call."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import (
    CommitLogFolder,
    ConfigFile,
    Dir,
    Format,
    check_is_there,
    note,
    read_config,
)
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.migration.follow.move import FollowedMove
from cqstore.migration.report_record import report_record
from cqstore.replication.address import address
from cqstore.replication.endpoint import find_host
from cqstore.replication.signals import ENDED_BY_SIGNAL, ended_by
from cqstore.store.queue.bulk import bulk_names
from cqstore.store.service.layout.store_layout import refuse_log_elsewhere

Into = Annotated[
    Path,
    typer.Option("--into", metavar="NEW", help="Folder of the new store."),
    OutputPath(locked=False, is_store=True),
]
To = Annotated[
    str,
    typer.Option(metavar="BACKEND", help=f"Backend of the new store: {' or '.join(bulk_names())}."),
]


def follow_command(
    root: Dir,
    master: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Replication port of the broker.")
    ],
    *,
    into: Into,
    to: To = "rocksdb",
    without: WithoutOption = None,
    commit_log: CommitLogFolder = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Move the store of a running broker into the new folder NEW by replicating it.

    Run this command on the broker's machine. It only reads DIR. It copies the closed log files,
    receives the rest from the replication port, and compares all queues. Stop the broker when the
    command reports "following". The command then copies the end of the log, compares the ends of
    all queues, and copies and converts the tables. Start the broker with storePathRootDir=NEW and
    without storePathCommitLog; pass that configuration file with --config. After Ctrl-C (exit code
    130) or SIGTERM (143) the same call continues.

    Examples:
        cqstore migrate follow DIR HOST:PORT --into NEW
        cqstore migrate follow DIR HOST:PORT --into NEW --config new.conf
        cqstore migrate follow DIR HOST:PORT --into NEW --commitlog /d1/commitlog,/d2/commitlog
    """
    check_is_there(root)
    settings = read_config(config, into, is_new=True)
    refuse_log_elsewhere(into, settings, config)
    place = address(master)
    find_host(*place)
    move = FollowedMove(
        root, place, into, settings, backend=to,
        without=without or (), accept_older_tables=accept_older_tables, commit_log=commit_log,
        on_event=note,
    )  # fmt: skip
    ended = asyncio.run(ended_by(move.run()))
    output(kind).record(report_record(move.report))
    if ended:
        raise typer.Exit(ENDED_BY_SIGNAL + ended)
    if older := move.report.older_tables:
        note(
            f"{into}: the JSON files of {', '.join(older)} are older than the tables that the"
            " broker kept in RocksDB"
        )
    note(f"the move of {root} to {into} is complete: start the broker on {into}")
