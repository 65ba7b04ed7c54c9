"""``cqstore ab live``: mirrored reads of a store, or the operator's own client, on each backend."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.commands.live_clients import OwnClient, Rounds, Work, measure_clients
from cqstore.ab.commands.report import Matters, Page, check_place, end_with, report
from cqstore.ab.commands.run import Sides
from cqstore.ab.live.live import live_result
from cqstore.ab.results.result_file import write_result
from cqstore.cli.options import ConfigFile, Format, meant, note, refuse_without
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath
from cqstore.serve.client_command import ClientCommand
from cqstore.serve.commands.client_options import ClientTimeout

Root = Annotated[
    Path | None,
    typer.Argument(
        metavar="DIR",
        help="Root folder of the store with mirrored reads. Needed unless --client-command is"
        " given.",
        callback=meant,
    ),
]
ResultFile = Annotated[
    Path | None,
    typer.Option(
        "--result",
        metavar="FILE",
        help="Write the result as JSON to FILE. Default with --client-command: result.json.",
    ),
    OutputPath(),
]


def live_command(
    root: Root = None, html: Page = None, result: ResultFile = None,
    kind: Format = OutputFormat.TABLE, *,
    client_command: OwnClient = None, client_timeout: ClientTimeout = 600, side: Sides = None,
    rounds: Rounds = None, work: Work = None, matters: Matters = None, config: ConfigFile = None,
) -> None:  # fmt: skip
    """Report mirrored reads of a store (abShare), or compare backends with your own clients.

    With DIR, report the reads that an open store repeated on its other backend; it saves its
    figures once a minute. It needs double write and abShare or abShares, and is not changed.
    With --client-command, serve a new store of each side in turn, as serve --writable does, and run
    the command for it. The command must send and receive the same number of messages in each run.
    For a RocketMQ broker, see ab follow. Exit code 1 if answers or loads differ, or if none was
    compared.

    Examples:
        cqstore ab live DIR --html live.html --result monday.json
        cqstore ab live --client-command "java -jar my-test.jar {address}"
    """
    if client_command is not None:
        if root is not None:
            raise typer.BadParameter("DIR cannot be combined with --client-command")
        client = ClientCommand(client_command, client_timeout)
        measure_clients(client, side, rounds, work, matters, result, html, config, kind)
        return
    refuse_without(
        "--client-command", side=side, rounds=rounds, work=work, matters=matters, config=config
    )
    if root is None:
        raise typer.BadParameter("give DIR, or --client-command", param_hint="DIR")
    _report_mirrored(root, result, html, kind)


def _report_mirrored(
    root: Path, result: Path | None, html: Path | None, kind: OutputFormat
) -> None:
    """Print the report of the mirrored reads of the store in ``root``."""
    if result is not None:
        check_place(result, "result", "--result")
    if html is not None:
        check_place(html, "HTML report", "--html", result)
    found = live_result(root, ["cqstore", "ab", "live", shlex.quote(str(root))])
    if result is not None:
        write_result(result, found)
        note(f"result written to {result}")
    for limit in found.not_measured:
        note(limit)
    end_with(report(found, html, kind))
