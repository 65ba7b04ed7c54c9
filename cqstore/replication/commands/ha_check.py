"""The verbs of ``cqstore ha``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Format, meant, note, read_config
from cqstore.cli.output import OutputFormat, output
from cqstore.cli.path_marks import OutputPath
from cqstore.cli.progress import progress
from cqstore.replication.address import address
from cqstore.replication.ha.check_report import Checked
from cqstore.replication.ha.fetched import Master
from cqstore.replication.ha.ha_check import CheckScope, MasterAddress, checked
from cqstore.replication.ha_settings import HaSettings
from cqstore.store.path_kind import exists
from cqstore.store.paths import named_path

A = Annotated[str, typer.Argument(metavar="A", help="A store's folder, or HOST:PORT of a master.")]
B = Annotated[str, typer.Argument(metavar="B", help="Likewise.")]
Last = Annotated[
    int | None,
    typer.Option(
        "--last", metavar="BYTES", min=1,
        help="Of a store's log to compare with a running master's; without it the last file.",
    ),
]  # fmt: skip
Spool = Annotated[
    Path | None,
    typer.Option(
        "--spool", metavar="PATH",
        help="Where what a master sends is kept meanwhile; without it the system's temp folder.",
    ),
    OutputPath(locked=False),
]  # fmt: skip


def check(
    a: A,
    b: B,
    *,
    last: Last = None,
    spool: Spool = None,
    config: ConfigFile = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Compare two logs record by record, or one with a running master's. Changes nothing.

    Reported are where both logs begin and end, up to where they are the same, what each has behind
    that place, records that are not in their queues, and which topics, groups and offsets of the
    brokers differ, whatever form each keeps them in. Exit code 1 if the logs have parted, a log is
    damaged, queues lack records, or tables differ or cannot be read; a log that is the begin of the
    other one has not parted.
    """
    with (
        progress("comparing") as tick,
        checked(
            place(a, config), place(b, config), read_config(config), CheckScope(last, spool), tick
        ) as found,
    ):
        show(found, kind)
        differs = any(True for _ in found.differences())
    if differs:
        raise typer.Exit(1)


def show(found: Checked, kind: OutputFormat) -> None:
    """Print what was found; a table and sentences, or one object."""
    if kind is not OutputFormat.TABLE:
        output(kind).record(found.as_json())
        return
    output(kind).rows(found.rows())
    note(found.summary())
    for sentence in (*found.remarks(), *found.differences()):
        note(sentence)


def place(text: str, config: Path | None) -> MasterAddress:
    """Return what a word names: a folder if there is one of that name, else a master."""
    path = named_path(text)
    if exists(path) or ":" not in text or "/" in text:
        return meant(path) or path
    settings = HaSettings.read(config)
    host, port = address(text)
    return Master(
        host, port, settings.ha_housekeeping_interval / 1000,
        settings.ha_send_heartbeat_interval / 1000,
    )  # fmt: skip
