"""``cqstore migrate follow``: the move of a running broker's store, one call from begin to end."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from cqstore.broker.conversion.options import AcceptOlderTables, WithoutOption
from cqstore.cli.options import ConfigFile, Dir, Format, check_is_there, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.migration.follow.move import FollowedMove
from cqstore.migration.report_record import report_record
from cqstore.replication.address import address
from cqstore.replication.endpoint import find_host
from cqstore.replication.signals import ENDED_BY_SIGNAL, ended_by
from cqstore.store.queue.bulk import bulk_names
from cqstore.store.service.layout.store_layout import refuse_log_elsewhere


def follow_command(
    root: Dir,
    master: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Replication port of the broker.")
    ],
    *,
    into: Annotated[
        Path,
        typer.Option("--into", metavar="NEW", help="Folder of the new store."),
        OutputPath(locked=False, is_store=True),
    ],
    to: Annotated[
        str,
        typer.Option(
            metavar="BACKEND", help=f"Of the new store's queues: {' or '.join(bulk_names())}."
        ),
    ] = "rocksdb",
    without: WithoutOption = None,
    accept_older_tables: AcceptOlderTables = False,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Follow the running broker of the store DIR into NEW; once it has stopped, NEW is what it was.

    DIR is only read. The closed log files are copied, the rest comes over the wire, and all queues
    are compared with the broker's while it runs. Then stop the broker: the last bytes are taken
    from its log, the ends of all queues compared, its tables copied, and converted where NEW's
    broker reads another form. Start it with NEW as its storePathRootDir, and without
    storePathCommitLog: --config takes that file. Ctrl-C ends the call, and the next one goes on.
    """
    check_is_there(root)
    settings = read_config(config, into, is_new=True)
    refuse_log_elsewhere(into, settings, config)
    place = address(master)
    find_host(*place)
    move = FollowedMove(
        root, place, into, settings, backend=to,
        without=without or (), accept_older_tables=accept_older_tables, tell=note,
    )  # fmt: skip
    ended = asyncio.run(ended_by(move.run()))
    output(kind).record(report_record(move.report))
    if ended:
        raise typer.Exit(ENDED_BY_SIGNAL + ended)
    if older := move.report.older_tables:
        note(f"the files of {', '.join(older)} in {into} are older than what the broker had")
    note(f"{into} has all that {root} had: start the broker with it")
