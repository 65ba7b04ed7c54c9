"""``cqstore ab live``: the report of the mirrored reads of a running or stopped store."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from cqstore.ab.commands.report import Page, check_place, end_with, report
from cqstore.ab.live.live import live_result
from cqstore.ab.results.result_file import write_result
from cqstore.cli.options import Dir, Format, note
from cqstore.cli.output import OutputFormat
from cqstore.cli.path_marks import OutputPath


def live_command(
    root: Dir,
    html: Page = None,
    result: Annotated[
        Path | None,
        typer.Option("--result", metavar="FILE", help="Write the result as JSON to FILE."),
        OutputPath(),
    ] = None,
    kind: Format = OutputFormat.TABLE,
) -> None:
    """Report the reads that were repeated on the other backend (abShare). Changes nothing.

    The store may be open: it saves its figures once a minute. The store needs double write and a
    share of mirrored reads (abShare or abShares). For a RocketMQ broker, see ab follow. Exit code 1
    if answers differ, or if no answer was compared.

    Examples:
        cqstore ab live DIR
        cqstore ab live DIR --html live.html --result monday.json
    """
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
