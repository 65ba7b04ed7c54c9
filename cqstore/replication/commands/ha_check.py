"""The command ``cqstore ha check``."""

from pathlib import Path
from typing import Annotated

import typer

from cqstore.cli.options import ConfigFile, Format, meant, note, read_configs
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
from cqstore.store.settings.config import StoreConfig

_PLACE = "Folder of a store, or HOST:PORT (haListenPort) of a running master."
A = Annotated[str, typer.Argument(metavar="A", help=_PLACE)]
B = Annotated[str, typer.Argument(metavar="B", help=_PLACE)]
Last = Annotated[
    int | None,
    typer.Option(
        "--last", metavar="BYTES", min=1,
        help="Bytes of the log's end to compare with a running master. Default: the last file.",
    ),
]  # fmt: skip
Spool = Annotated[
    Path | None,
    typer.Option(
        "--spool", metavar="PATH",
        help="Folder for temporary copies of a master's log. Default: the system's temp folder.",
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
    """Compare the logs of two stores or running masters. Changes nothing.

    Compares record by record. Reports the begin and end of both logs, the end of their common part,
    and what each log has after it. Also reports records that are missing from queues, and topics,
    groups and offsets that differ, whatever form each broker uses.

    Exit code 1 if the logs diverge, a log is damaged, queues lack records, or tables differ or
    cannot be read. A log that is a prefix of the other does not diverge.

    Examples:
        cqstore ha check DIR broker-a:10912
        cqstore ha check MASTER_DIR SLAVE_DIR --output json
    """
    one, other = place(a, config), place(b, config)
    settings = side_configs(config, one, other)
    with (
        progress("comparing") as tick,
        checked(one, other, settings, CheckScope(last, spool), tick) as found,
    ):
        show(found, kind)
        differs = any(True for _ in found.differences())
    if differs:
        raise typer.Exit(1)


def side_configs(
    config: Path | None, one: MasterAddress, other: MasterAddress
) -> tuple[StoreConfig, StoreConfig]:
    """Return the settings of both sides, both read from one file."""
    first, second = read_configs(
        config, *(each if isinstance(each, Path) else None for each in (one, other))
    )
    return first, second


def show(found: Checked, kind: OutputFormat) -> None:
    """Print the result: a table and sentences, or one JSON object."""
    if kind is not OutputFormat.TABLE:
        output(kind).record(found.as_json())
        return
    output(kind).rows(found.rows())
    note(found.summary())
    for sentence in (*found.remarks(), *found.differences()):
        note(sentence)


def place(text: str, config: Path | None) -> MasterAddress:
    """Return a folder if ``text`` names an existing one, else a running master."""
    path = named_path(text)
    if exists(path) or ":" not in text or "/" in text:
        return meant(path) or path
    settings = HaSettings.read(config)
    host, port = address(text)
    return Master(
        host, port, settings.ha_housekeeping_interval / 1000,
        settings.ha_send_heartbeat_interval / 1000,
    )  # fmt: skip
